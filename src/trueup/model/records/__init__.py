"""What the verbs return: one record a verb."""
