"""The report page of each kind of result."""
