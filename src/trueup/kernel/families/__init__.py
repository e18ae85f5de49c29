"""Families of tables that share margins: acyclic sets of variables, and least squares and whole tables for them."""
