"""Dharangutte, Gao, Gong and Yu: integer subspace differential privacy."""
