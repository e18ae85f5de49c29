"""The sections of report pages."""
