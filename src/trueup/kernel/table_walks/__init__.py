"""Markov chain steps over tables of counts with given sums."""
