"""Draws of continuous counts under linear inequalities."""
