"""Readers of tables published by other agencies, and drafts of the specs that describe them."""
