"""Noise that leaves given sums unchanged."""
