library(testthat)
library(trueup)

test_check("trueup")
