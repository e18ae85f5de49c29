# The command: where it is, how it is called, and how its errors become R's.

command_words <- function() {
  named <- Sys.getenv("TRUEUP")
  words <- if (nzchar(named)) strsplit(named, " ", fixed = TRUE)[[1]] else unname(Sys.which("trueup"))
  if (nzchar(words[1])) words else NULL
}

#' Return TRUE if the command trueup is found.
trueup_available <- function() !is.null(command_words())

# Return the options of a command as its words: epsilon = 1 as --epsilon 1, quick = TRUE as --quick.
option_words <- function(options) {
  if (length(options) && (is.null(names(options)) || any(names(options) == ""))) {
    stop("an option has no name. To do: give it as name = value", call. = FALSE)
  }
  words <- lapply(names(options), function(name) {
    value <- options[[name]]
    flag <- paste0("--", gsub("_", "-", name, fixed = TRUE))
    if (is.null(value) || identical(value, FALSE)) return(NULL)
    if (identical(value, TRUE)) return(flag)
    as.vector(rbind(flag, vapply(value, text_of, "")))
  })
  unlist(words)
}

# Return a number without powers of ten, which options of whole numbers do not take.
text_of <- function(value) {
  if (is.numeric(value)) format(value, scientific = FALSE, digits = 15, trim = TRUE) else as.character(value)
}

# Run the command; return its standard output, and stop with its error.
run_trueup <- function(words) {
  command <- command_words()
  if (is.null(command)) {
    stop(
      "the command 'trueup' is not found. To do: pip install trueup, or name it in the environment: ",
      "Sys.setenv(TRUEUP = \"python3 -m trueup\")",
      call. = FALSE
    )
  }
  out <- tempfile("trueup-out")
  err <- tempfile("trueup-err")
  on.exit(unlink(c(out, err)))
  code <- system2(command[1], shQuote(c(command[-1], words)), stdout = out, stderr = err)
  text <- readLines(out, encoding = "UTF-8", warn = FALSE)
  if (code != 0) stop(error_of(text, readLines(err, encoding = "UTF-8", warn = FALSE)), call. = FALSE)
  text
}

# Return what the command says of an error, in JSON or as text.
error_of <- function(text, err) {
  read <- tryCatch(jsonlite::fromJSON(paste(text, collapse = "\n"))$error$message, error = function(e) NULL)
  if (!is.null(read)) return(read)
  said <- grep("^error: ", err, value = TRUE)
  if (length(said)) sub("^error: ", "", said[1]) else paste(utils::tail(err, 5), collapse = "\n")
}

run_json <- function(words) {
  jsonlite::fromJSON(paste(run_trueup(c(words, "--json")), collapse = "\n"))
}

# Return the path of a table: a data frame is written to a file of this session, which `done` removes.
as_file <- function(data) {
  if (!is.data.frame(data)) return(list(path = path.expand(data), done = function() NULL))
  path <- tempfile("trueup-data", fileext = ".csv")
  file.create(path)
  Sys.chmod(path, "0600")
  write.csv(data, path, row.names = FALSE, na = "", fileEncoding = "UTF-8")
  list(path = path, done = function() unlink(path))
}

# Return the folder of a release or posterior, or a path as it is.
folder_of <- function(x) if (inherits(x, c("trueup_release", "trueup_posterior"))) x$folder else path.expand(x)
