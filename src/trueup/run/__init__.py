"""Executors of tasks, and stores of their results."""
