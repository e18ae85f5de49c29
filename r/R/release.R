# Releases: making them, reading them, printing and plotting them.

release <- function(spec, data, out = tempfile("release"), geography = NULL, ...) {
  data <- as_file(data)
  on.exit(data$done())
  places <- if (is.null(geography)) NULL else as_file(geography)
  if (!is.null(places)) on.exit(places$done(), add = TRUE)
  options <- option_words(list(data = data$path, geography = places$path, out = out, ...))
  run_json(c("release", path.expand(spec), options))
  read_release(out)
}

explain <- function(spec, geography = NULL, ...) asked("explain", spec, geography, ...)

plan <- function(spec, geography = NULL, ...) asked("plan", spec, geography, ...)

asked <- function(verb, spec, geography, ...) {
  places <- if (is.null(geography)) NULL else as_file(geography)
  if (!is.null(places)) on.exit(places$done())
  found <- run_json(c(verb, path.expand(spec), option_words(list(geography = places$path, ...))))
  structure(found, class = "trueup_explanation", verb = verb)
}

print.trueup_explanation <- function(x, ...) {
  cat("trueup", attr(x, "verb"), "\n")
  utils::str(unclass(x), max.level = 1, give.attr = FALSE, no.list = TRUE)
  invisible(x)
}

read_release <- function(folder) {
  folder <- folder_of(folder)
  exported <- tempfile("trueup-csv")
  on.exit(unlink(exported, recursive = TRUE))
  run_trueup(c("export", folder, "--to", "csv", "--out", exported))
  manifest <- jsonlite::fromJSON(file.path(folder, "public", "manifest.json"), simplifyDataFrame = FALSE)
  stems <- vapply(manifest$counts, function(entry) sub("\\.[a-z]+$", "", basename(entry$files)), "")
  tables <- lapply(file.path(exported, paste0(stems, ".csv")), read_table, RELEASED)
  names(tables) <- vapply(manifest$counts, table_name, "")
  structure(
    list(
      folder = folder, title = about(exported, "Title"), guarantee = unlist(manifest$guarantee$sentences),
      checks = unlist(manifest$checks), tables = tables
    ),
    class = "trueup_release"
  )
}

RELEASED <- c("released", "noisy", "published", "margin.of.error")
SUMMARISED <- c("mean", "sd", "median", "low", "high", "mass", "mcse", "ess", "r_hat")

# Return a table's name as the command prints it: county x sex.
table_name <- function(entry) paste(c(entry$level, unlist(entry$attributes)), collapse = " x ")

# Read a table: keys are text (01 is not 1), the named columns numbers.
read_table <- function(path, numbers) {
  table <- read.csv(path, colClasses = "character", encoding = "UTF-8", na.strings = character())
  for (name in intersect(names(table), numbers)) {
    table[[name]] <- suppressWarnings(as.numeric(table[[name]]))  # empty, or * where nothing is shown: NA
  }
  table
}

about <- function(exported, name) {
  table <- read.csv(file.path(exported, "about.csv"), colClasses = "character", encoding = "UTF-8")
  table$text[table$about == name][1]
}

print.trueup_release <- function(x, ...) {
  cat("Release:", x$title, "\n", x$guarantee[1], "\n", sep = " ")
  for (name in names(x$tables)) cat("  ", name, ": ", nrow(x$tables[[name]]), " counts\n", sep = "")
  invisible(x)
}

# The table that is plotted: the one named, else the largest of at most `most` rows.
chosen_table <- function(x, table, most) {
  if (!is.null(table)) {
    if (!table %in% names(x$tables)) {
      stop("there is no table '", table, "'. Needed: one of: ", paste(names(x$tables), collapse = ", "), call. = FALSE)
    }
    return(table)
  }
  rows <- vapply(x$tables, nrow, 0L)
  small <- rows[rows <= most]
  names(x$tables)[match(if (length(small)) max(small) else min(rows), rows)]
}

plot.trueup_release <- function(x, table = NULL, most = 40, ...) {
  name <- chosen_table(x, table, most)
  shown <- x$tables[[name]]
  margin <- if (is.null(shown$margin.of.error)) rep(NA_real_, nrow(shown)) else shown$margin.of.error
  keys <- shown[setdiff(names(shown), RELEASED)]
  ranked(labels_of(keys, nrow(shown)), shown$released, shown$released - margin, shown$released + margin, most, name, ...)
  invisible(x)
}

labels_of <- function(keys, rows) if (length(keys)) do.call(paste, c(unname(keys), sep = ", ")) else rep("all", rows)

# Plot counts with their intervals, the largest on top.
ranked <- function(labels, value, low, high, most, title, xlab = "counts", ...) {
  order <- head(order(value, decreasing = TRUE), most)
  at <- rev(seq_along(order))
  old <- par(mar = c(4, min(18, 1.5 + 0.55 * max(nchar(labels[order]))), 2, 1))
  on.exit(par(old))
  span <- range(c(0, value[order], low[order], high[order]), na.rm = TRUE)
  plot(value[order], at, xlim = span, yaxt = "n", ylab = "", xlab = xlab, main = title, pch = 19, ...)
  known <- !is.na(low[order])
  segments(low[order][known], at[known], high[order][known], at[known])
  axis(2, at = at, labels = labels[order], las = 1, tick = FALSE)
}
