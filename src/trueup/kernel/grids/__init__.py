"""Messages on a tree of counts, on grids of some hundred points: a cost that noise and counts do not change."""
