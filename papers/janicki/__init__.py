"""Janicki et al.: constrained inference."""
