"""The lattice of integer vectors that leave all invariants unchanged: `L = {v in Z^n : A v = 0}`.

`algebra` is exact linear algebra over the integers, `structure` splits the invariants into
independent pieces, `smallest` finds the smallest changes that keep them, `graver` the
moves that connect tables.
"""
