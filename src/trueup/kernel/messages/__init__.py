"""Sums and maxima of products over trees of whole counts."""
