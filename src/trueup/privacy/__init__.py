"""The arithmetic of privacy losses."""
