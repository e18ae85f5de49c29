"""Modes and draws of multinomial counts with noise on their totals."""
