"""Noise distributions, one per file."""
