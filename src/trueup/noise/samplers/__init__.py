"""Exact sampling of discrete laws from random bits."""
