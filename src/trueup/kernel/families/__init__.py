"""Least squares and whole tables for families of tables that share margins, by acyclic sets of variables."""
