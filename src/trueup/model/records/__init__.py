"""The records that verbs return."""
