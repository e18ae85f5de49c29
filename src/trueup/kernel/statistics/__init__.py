"""Diagnostics of draws, moments of streams, intervals of ratios."""
