"""The lattice of integer vectors that change no invariant: `L = {v in Z^n : A v = 0}`.

`algebra` is exact linear algebra over the integers, `structure` splits the invariants into
independent pieces, `moves` finds the smallest changes that keep the invariants (the unit in
which privacy is stated), `tape`, `sums`, `tables`, `free`, `klein` and `trees` draw from laws on the
lattice, `chain` is the Markov chain with its coupled diagnostics, and `fibre` handles nonnegative counts.
"""
