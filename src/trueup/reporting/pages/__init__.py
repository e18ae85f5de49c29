"""One page for each kind of record."""
