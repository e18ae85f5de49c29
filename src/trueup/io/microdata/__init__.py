"""Confidential counts of every cell, read from tables of records or of counts."""
