"""The nouns, all frozen: cells, trees, margins, constraints, the spec, and the five records."""
