"""One noise distribution a file."""
