"""run: where tasks are carried out, and where their results are kept."""
