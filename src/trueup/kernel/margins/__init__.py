"""Projections of one table on given margins, continuous and whole."""
