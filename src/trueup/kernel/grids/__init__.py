"""Messages on a tree of counts, on grids of some hundred points, at a cost independent of noise and counts."""
