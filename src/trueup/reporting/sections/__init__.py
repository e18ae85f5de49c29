"""The sections that pages are made of."""
