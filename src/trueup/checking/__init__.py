"""Verifies a bundle from its files alone; imports nothing of what made it."""
