"""The frozen records of a problem: cells, trees, margins, constraints, the spec, and the five records that verbs return."""
