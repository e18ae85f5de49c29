"""Likelihoods of true counts behind released counts."""
