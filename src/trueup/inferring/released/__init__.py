"""Posteriors of true counts behind released counts."""
