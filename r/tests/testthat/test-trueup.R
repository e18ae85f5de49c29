folder <- NULL
demo <- function() {
  skip_if_not(trueup_available(), "the command trueup is not found")
  if (is.null(folder)) folder <<- demo_folder()
  folder
}

test_that("options become words of the command", {
  words <- trueup:::option_words(list(epsilon = 1, table = c("a.csv", "b.csv"), quick = TRUE, json = FALSE, draws = 1e5))
  expect_equal(words, c("--epsilon", "1", "--table", "a.csv", "--table", "b.csv", "--quick", "--draws", "100000"))
  expect_error(trueup:::option_words(list(1)), "has no name")
})

test_that("a data frame is released, and its tables add up", {
  data <- read.csv(file.path(demo(), "children.csv"), colClasses = c(county = "character"))
  released <- release(file.path(demo(), "children.toml"), data)
  expect_s3_class(released, "trueup_release")
  cells <- released$tables[["county x education"]]
  sums <- tapply(cells$released, cells$county, sum)
  counties <- released$tables[["county"]]
  expect_equal(as.numeric(sums[counties$county]), counties$released)
  expect_equal(sum(counties$released), released$tables[["all"]]$released)
  expect_match(released$guarantee[1], "epsilon = 1")
  expect_true(all(released$checks))
})

test_that("a data frame with confidential counts is not left in a file", {
  before <- list.files(tempdir(), "^trueup-data")
  data <- read.csv(file.path(demo(), "children.csv"), colClasses = c(county = "character"))
  release(file.path(demo(), "children.toml"), data)
  expect_equal(list.files(tempdir(), "^trueup-data"), before)
})

test_that("a posterior is drawn, read again and asked", {
  drawn <- infer(file.path(demo(), "children"), draws = 400)
  again <- read_posterior(drawn$folder)
  expect_equal(again$tables, drawn$tables)
  table <- again$tables[["county x education"]]
  expect_true(all(table$low <= table$median & table$median <= table$high))
  answer <- ask(again, "'county=Alpha' - 'county=Beta'")
  means <- setNames(again$tables$county$mean, again$tables$county$county)
  expect_equal(answer$mean, unname(means["Alpha"] - means["Beta"]), tolerance = 0.05)
  expect_length(ask(again, c("county", "rank(county)")), 2)
})

test_that("explain says what a spec costs", {
  places <- data.frame(county = c("Alpha", "Beta", "Gamma", "Delta"))
  found <- explain(file.path(demo(), "children.toml"), places, quick = TRUE)
  expect_output(print(found), "trueup explain")
  expect_true("guarantee" %in% names(found))
})

test_that("plots are drawn, and a strange table is named", {
  released <- read_release(file.path(demo(), "children"))
  pdf(NULL)
  on.exit(dev.off())
  expect_s3_class(plot(released), "trueup_release")
  expect_s3_class(plot(infer(released, draws = 200), "county"), "trueup_posterior")
  expect_error(plot(released, "town"), "Needed: one of: all, county")
})

test_that("errors are those of the command", {
  demo()
  expect_error(release("no.toml", data.frame(a = 1)), "no.toml")
  expect_error(read_posterior(tempdir()), "holds no posterior")
})

test_that("a posterior in Parquet can be asked without arrow", {
  skip_if(requireNamespace("arrow", quietly = TRUE), "arrow is installed")
  data <- read.csv(file.path(demo(), "children.csv"), colClasses = c(county = "character"))
  released <- release(file.path(demo(), "children.toml"), data)
  kept <- tempfile("kept")
  trueup:::run_trueup(c("infer", trueup:::folder_of(released), "--out", kept, "--draws", "100"))
  expect_warning(posterior <- read_posterior(kept), "ask\\(\\) works")
  expect_length(posterior$tables, 0)
  expect_equal(nrow(ask(posterior, "county")), length(unique(data$county)))
})
