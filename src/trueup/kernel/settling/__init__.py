"""Whole nonnegative tables from the top of a hierarchy down, each nearest to its estimates."""
