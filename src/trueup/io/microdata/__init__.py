"""Readers of the confidential counts of every cell, from tables of records or of counts."""
