"""Other agencies' published files."""
