"""Exact samplers of integer vectors whose given sums are zero."""
