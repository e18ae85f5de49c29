"""Zhu, Van Hentenryck and Fioretto (2021)."""
