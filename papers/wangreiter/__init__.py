"""Wang and Reiter (2021)."""
