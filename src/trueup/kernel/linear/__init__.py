"""Quadratic programs and integer points under general linear rules."""
