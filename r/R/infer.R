# Posteriors: drawing them, reading them again, asking them.

infer <- function(source = NULL, out = tempfile("posterior"), ...) {
  source <- if (is.null(source)) NULL else folder_of(source)
  run_trueup(c("infer", source, option_words(list(out = out, csv = TRUE, ...))))
  read_posterior(out)
}

read_posterior <- function(folder) {
  folder <- folder_of(folder)
  path <- file.path(folder, "manifest.json")
  if (!file.exists(path)) {
    stop("'", folder, "' holds no posterior. Needed: a folder that infer() or 'trueup infer --out' wrote", call. = FALSE)
  }
  manifest <- jsonlite::fromJSON(path, simplifyDataFrame = FALSE)
  files <- list.files(file.path(folder, "summary"), full.names = TRUE)
  if (any(grepl("\\.parquet$", files)) && !requireNamespace("arrow", quietly = TRUE)) {
    warning(
      "the tables of this posterior are Parquet and stay unread; ask() works. To do: install.packages(\"arrow\"), or draw it with csv = TRUE",
      call. = FALSE
    )
    files <- character(0)
  }
  tables <- lapply(files, read_summary)
  names(tables) <- sub("\\.[a-z]+$", "", basename(files))
  stems <- vapply(manifest$tables, function(entry) paste(c(entry$level, unlist(entry$attributes)), collapse = "-"), "")
  known <- match(names(tables), stems)
  names(tables)[!is.na(known)] <- vapply(manifest$tables[known[!is.na(known)]], table_name, "")
  structure(
    list(
      folder = folder, title = manifest$title, level = as.numeric(manifest$level), draws = manifest$draws,
      promise = manifest$intervals, tables = tables
    ),
    class = "trueup_posterior"
  )
}

read_summary <- function(path) {
  if (grepl("\\.csv$", path)) return(read_table(path, SUMMARISED))
  as.data.frame(arrow::read_parquet(path))
}

ask <- function(posterior, questions, ...) {
  found <- jsonlite::fromJSON(
    paste(run_trueup(c("ask", folder_of(posterior), questions, option_words(list(...)), "--json")), collapse = "\n"),
    simplifyDataFrame = FALSE
  )
  answers <- lapply(found$answers, function(one) {
    one <- lapply(one, function(column) unlist(lapply(column, function(value) if (is.null(value)) NA else value)))
    as.data.frame(one, stringsAsFactors = FALSE, check.names = FALSE)
  })
  if (length(answers) == 1) answers[[1]] else answers
}

print.trueup_posterior <- function(x, ...) {
  cat("Posterior: ", x$title, " (", x$draws, ")\n", x$promise, "\n", sep = "")
  for (name in names(x$tables)) cat("  ", name, ": ", nrow(x$tables[[name]]), " counts\n", sep = "")
  invisible(x)
}

plot.trueup_posterior <- function(x, table = NULL, most = 40, ...) {
  name <- chosen_table(x, table, most)
  shown <- x$tables[[name]]
  ranked(shown$label, shown$mean, shown$low, shown$high, most, name, ...)
  invisible(x)
}

demo_folder <- function(folder = tempfile("trueup-demo")) {
  run_trueup(c("demo", "--out", folder))
  folder
}
