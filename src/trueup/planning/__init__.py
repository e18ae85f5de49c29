"""Expected errors, and the division of a budget."""
