"""Counts on a tree: least squares, nonnegative, whole, from the top."""
