"""Small counts beside others that were raised to their bounds: shrunk a little, with their sum kept.

A projection on `sum x = total`, `x >= lower` takes the same threshold, in units of variance, off all children, and counts
just above it are as likely noise as those below: kept as they are they err more than need be. What is left of a child,
`y = z + p V - lower`, is multiplied by `1 - e s^2 / (s^2 + y^2)`, `s` being twice its standard deviation `sqrt(V)`; counts
well above are left alone, and the price `p` rises until the sum is the total again, so that large children gain too. The
share `e` is a tenth, and less where the bounds raise the threshold by less than a standard deviation: without bounds that
bind nothing is changed. A tenth is the most at which no size class of `python -m benchmarks tree-shrink` errs by over one
per cent more. Parts whose standard deviation is below six counts stay as projected: equal fractions of theirs are rounded
by chance, shrunk ones always the same way, by which some classes erred by up to four per cent more.
"""

from __future__ import annotations

import math

from trueup.kernel.compiled import njit

SHARE, REACH, LEAST = 0.1, 2.0, 36.0
MAX_NEWTON_STEPS, PRECISE = 30, 1e-10


@njit(cache=True)
def shrink_part(a, b, spread, lower, upper, total, estimates, x):
    """Shrink the projected parts ``a .. b - 1`` of ``x`` in place, given their ``estimates`` (b - a,) before.

    Left as projected where a part that is not exact has no measurement, a variance below 36 or an upper bound.
    """
    missing, variance, price, free = total, 0.0, 0.0, False
    for c in range(a, b):
        v = spread[c]
        if v > 0.0 and (v < LEAST or v == math.inf or upper[c] < math.inf):
            return
        missing -= estimates[c - a] if v > 0.0 else x[c]
        variance += v
        if v > 0.0 and x[c] > lower[c]:
            price, free = (x[c] - estimates[c - a]) / v, True
    if not free:
        return
    threshold = missing / variance - price  # what the bounds add to it, per unit of variance
    if threshold * math.sqrt(variance) < PRECISE:
        return
    for _ in range(MAX_NEWTON_STEPS):
        gap, slope = total, 0.0
        for c in range(a, b):
            y, turn = _shrunk(spread[c], estimates[c - a] + price * spread[c] - lower[c], threshold)
            gap -= lower[c] + y if spread[c] > 0.0 else x[c]
            slope += spread[c] * turn
        if slope <= 0.0 or abs(gap) <= PRECISE * max(1.0, total):
            break
        price += gap / slope
    above, found = total, 0.0
    for c in range(a, b):
        if spread[c] > 0.0:
            y, _turn = _shrunk(spread[c], estimates[c - a] + price * spread[c] - lower[c], threshold)
            x[c] = lower[c] + y
            above -= lower[c]
            found += y
        else:
            above -= x[c]
    for c in range(a, b):  # to the last digit
        if spread[c] > 0.0 and found > 0.0:
            x[c] = lower[c] + (x[c] - lower[c]) * (above / found)


@njit(cache=True)
def _shrunk(variance, y, threshold):
    """Return the remainder of a part that is y above its bound, and its derivative by y."""
    if y <= 0.0 or variance == 0.0:
        return 0.0, 0.0
    share = SHARE * min(1.0, threshold * math.sqrt(variance))
    s = REACH * REACH * variance
    r = s / (s + y * y)
    return y * (1.0 - share * r), 1.0 - share * r * (2.0 * r - 1.0)
