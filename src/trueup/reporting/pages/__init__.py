"""One page for each record."""
