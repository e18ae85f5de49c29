"""Reading and drafting of specs from files that other agencies published."""
