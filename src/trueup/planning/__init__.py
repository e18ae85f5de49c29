"""Expected errors, and how a budget is divided."""
