"""The frozen records of a problem: cells, places, margins, constraints, the spec, and what verbs return."""
