"""Tables of records, counted by cell."""
