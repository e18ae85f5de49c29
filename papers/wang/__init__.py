"""Wang (2020), draft."""
