"""Sections of report pages, each for one kind of content."""
