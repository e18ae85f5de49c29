"""Least squares of histograms: nested and crossing tables of counts at every place of a tree."""
