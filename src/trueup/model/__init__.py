"""Frozen records of a problem: cells, places, margins, constraints and the spec; and records of results."""
