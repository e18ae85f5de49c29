"""Verifies a bundle from its files alone; imports nothing of the code that made it."""
