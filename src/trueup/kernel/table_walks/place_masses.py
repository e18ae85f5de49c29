"""Masses of one place's steps: its prior, times its noise, times the messages of its parts.

A lowest place's steps lie in a window, those of a place above in that of its parts' sum. Masses are multiplied up from step to
step by the ratios of the prior's, which are rational in counts, and of normal noise, each a constant times the one before. Where
noise is not normal, or masses become too large or vanish, logs are added.

Functions that make no array are compiled with `_nrt=False`: they borrow the arrays of their callers, as `linked` says.

One file: ratios, noise and what is kept of them are one product, term by term.
"""

from __future__ import annotations

import math

import numpy as np

from trueup.kernel.compiled import njit
from trueup.kernel.table_walks.weights import parts

BOUND_TOLERANCE_COUNTS = 1e-6
HUGE = 1e280
"""Sums of masses that are multiplied up; where they are larger, logs are added."""
SINGLE = 1
"""Columns of a direction that changes totals."""
NARROW, WIDE = 16, 32
"""Longest window of a lowest place, and of siblings' sums: arrays have that many steps, zero beyond those in use, so that
loops are of a length known when they are compiled, and several terms are added at a time."""
MAX_BALANCE = 4.0
"""Largest factor per step of siblings' masses: its power of `WIDE` steps, the window of their sums, is far below the largest
number of single precision (3e38), and so is that of many siblings' next to it."""
LONGEST, LOWEST = 32, -700.0
"""Steps of so many counts have ratios of masses that are products of those for one; the least log of a mass above 0."""
FAR_OUT = 30.0
"""Numbers from which on Stirling's series for the gamma function is as good as its own."""
AT_ONCE = {"contract", "reassoc", "nsz"}
"""Floating-point rewrites allowed in sums of masses, so that several terms are added at a time."""


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def sign(k):
    """Return the sign, 1 or -1, of the change that a direction makes to its k-th column."""
    return 1 if k == 0 or k == 3 else -1


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def message_at(places, v):
    """Return where a place's message starts in the array of messages."""
    inner = places.level_ptr[-2]
    return WIDE * v if v < inner else NARROW * (v + inner)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _stirling(x):
    """Return the correction terms of Stirling's formula, accurate to 1e-12 for large x."""
    return (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / 1260.0 / (x * x)) / (x * x)) / x


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def log_gamma_difference(x, up, down):
    """Return `log Gamma(x + up) - log Gamma(x + down)`, by Stirling's series for large counts."""
    a, b = x + up, x + down
    if min(a, b) < FAR_OUT:
        return math.lgamma(a) - math.lgamma(b)
    d = up - down
    return d * (math.log(b) - 1.0) + (a - 0.5) * math.log1p(d / b) + _stirling(a) - _stirling(b)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def gamma_ratio(x, up, down, step):
    """Return the ratio of `Gamma(x + up) / Gamma(x + down)` at `x + step` to its value at x."""
    ratio = 1.0
    for k in range(step):
        ratio *= (x + k + up) / (x + k + down)
    return ratio


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _choose_window(rng, moves, state, columns, stride, row):
    """Draw the window of steps at a lowest place around a uniform position of the current table."""
    if not state.inhabited[row]:
        return 0, 1
    low = -int(rng.random() * moves.window)
    high = low + moves.window - 1
    for k in range(columns.size):
        most = state.x[row, columns[k]]
        most = most if stride == 1 else most // stride
        if sign(k) > 0:
            low = max(low, -most)
        else:
            high = min(high, most)
    return low, high - low + 1


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def leaf_mass_ratios(places, state, columns, stride, row, low, size, balance, ratios):
    """Write the ratios of each step's prior mass to that of the step before, at a lowest place."""
    rate, even = _rate(state, columns, row), _even(places, columns, row, balance)
    if stride == 1:
        _unit_ratios(places, state, columns, row, rate * even, low - 1.0, ratios[:NARROW])
    else:
        _unit_ratios(places, state, columns, row, rate, stride * (low - 1.0), ratios[: NARROW * stride])
        for i in range(size):
            ratio = even * ratios[stride * i]
            for k in range(stride * i + 1, stride * i + stride):
                ratio *= ratios[k]
            ratios[i] = ratio


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _rate(state, columns, row):
    """Return the factor of a lowest place's prior mass per step, apart from gamma functions."""
    last, s, rate = len(state.kappa) - 1, state.size[row], 1.0
    for k in range(columns.size):
        whole = state.kappa[last, columns[k]] + s
        rate *= 1.0 / whole if sign(k) > 0 else whole
    return rate * s if columns.size == SINGLE else rate


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _even(places, columns, row, balance):
    """Return the balancing factor per step that multiplies the masses of a lowest place."""
    return balance[places.parent[places.level_ptr[-2] + row]] if columns.size == SINGLE else 1.0


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _unit_ratios(places, state, columns, row, rate, begin, ratios):
    """Write the ratios of successive prior masses at a lowest place for steps of one count."""
    last, v = places.level_ptr.size - 2, places.level_ptr[-2] + row
    p, a, total = places.parent[v], state.a[last] * state.weight[v], state.total[v] + begin
    for k in range(columns.size):
        j = columns[k]
        up, x = state.kappa[last, j] * state.theta[p, j] + (j == state.spare[row]), float(state.x[row, j])
        if columns.size == SINGLE:
            x += begin
            for i in range(ratios.size):
                ratios[i] = rate * ((total + i + a) * (x + i + up)) / ((total + i + 1.0) * (x + i + 1.0))
        elif k == 0:
            x += begin
            for i in range(ratios.size):
                ratios[i] = rate * (x + i + up) / (x + i + 1.0)
        elif sign(k) > 0:
            x += begin
            for i in range(ratios.size):
                ratios[i] *= (x + i + up) / (x + i + 1.0)
        else:
            x -= begin
            for i in range(ratios.size):
                ratios[i] *= (x - i) / (x - i - 1.0 + up)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def leaf_log_masses(places, state, columns, stride, row, low, size, balance, logs):
    """Write to `logs` the log prior masses of a lowest place after each step of a move, up to a constant."""
    last, v = places.level_ptr.size - 2, places.level_ptr[-2] + row
    p, a, total = places.parent[v], state.a[last] * state.weight[v], state.total[v]
    each = stride * math.log(_rate(state, columns, row)) + math.log(_even(places, columns, row, balance))
    for i in range(logs.size):
        logs[i] = each * i
        t = stride * float(low + i)
        if i < size:
            if columns.size == SINGLE:
                logs[i] += log_gamma_difference(total + t, a, 1.0)
            for k in range(columns.size):
                j = columns[k]
                up = state.kappa[last, j] * state.theta[p, j] + (j == state.spare[row])
                logs[i] += log_gamma_difference(state.x[row, j] + sign(k) * t, up, 1.0)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _inner(places, state, columns, level, v, balance):
    """Return, for a place above the lowest level, gamma function parameters and the balancing factor."""
    up, down = (
        state.a[level] * state.weight[v] if level > 0 else 1.0,
        parts(places, state, v) * state.a[level + 1],
    )
    return up, down, (balance[places.parent[v]] if level > 0 else 1.0) / balance[v]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _inner_ratios(places, state, columns, stride, level, v, low, size, balance, ratios):
    """Write, for a place above the lowest level, the ratio of the prior probabilities of each step and the step before."""
    if columns.size > SINGLE:
        ratios[:WIDE] = 1.0
        return
    up, down, even = _inner(places, state, columns, level, v, balance)
    begin = state.total[v] + stride * (low - 1.0)
    if stride == 1:
        for i in range(WIDE):
            ratios[i] = even * (begin + i + up) / (begin + i + down)
    else:
        for i in range(1, size):
            ratios[i] = even * gamma_ratio(begin + stride * i, up, down, stride)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _inner_logs(places, state, columns, stride, level, v, low, size, balance, logs):
    """Write the log prior masses at a place above the lowest level, for steps of several counts."""
    logs[:] = 0.0
    if columns.size > SINGLE:
        return
    up, down, even = _inner(places, state, columns, level, v, balance)
    for i in range(size):
        total = state.total[v] + stride * float(low + i)
        logs[i] = i * math.log(even) + log_gamma_difference(total, up, down)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def weigh_alike(places, state, stride, balance):
    """Write the balancing factors per step that multiply the masses of each place's parts.

    A large concentration asks of every part that it grow, and of the place that it shrink, which come to nothing together. Apart,
    the masses of sums near the present one would be too small beside those of others. At a part of mean size a step up is even,
    unless that takes a larger factor than `MAX_BALANCE`. A small concentration asks for one at empty parts, but a second count
    there costs little, so that the masses of large sums would leave none in single precision for the present one.
    """
    for level in range(places.level_ptr.size - 2):
        a = state.a[level + 1]
        for p in range(places.level_ptr[level], places.level_ptr[level + 1]):
            mean = state.total[p] / parts(places, state, p)
            if stride == 1:
                even = (mean + 1.0) / (mean + a)
            else:
                even = math.exp(
                    log_gamma_difference(mean, a, 1.0) - log_gamma_difference(mean + stride, a, 1.0)
                )
            balance[p] = min(even, MAX_BALANCE)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def exp_of_negative(x):
    """Return the exponential of a number of 0 or less, in a form that the compiler vectorises."""
    y = max(x, LOWEST) * 2.0**-10
    z = 1.0 + y * (1 / 8) * (1.0 + y * (1 / 9) * (1.0 + y * (1 / 10)))
    z = 1.0 + y * (1 / 4) * (1.0 + y * (1 / 5) * (1.0 + y * (1 / 6) * (1.0 + y * (1 / 7) * z)))
    z = 1.0 + y * (1.0 + y * (1 / 2) * (1.0 + y * (1 / 3) * z))
    for _ in range(10):
        z *= z
    return z if x > LOWEST else 0.0


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _normal_mass_ratio(gap, room, level, row, low, bend):
    """Return the ratio of the first two masses of normal noise in a place's window.

    `bend` is half the second difference of the log mass: of one direction all places' are alike.
    """
    lean = bend * (2.0 * low + 1.0)
    for k in range(room.first[level], room.first[level + 1]):
        lean += room.law[k, 3] * gap[room.spot[k, 0] + row * room.spot[k, 1]]
    return math.exp(-lean)


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _normal_noises(gap, room, level, bend):
    """Write the ratio of the first two masses of normal noise for every lowest place.

    `_normal_mass_ratio` gives one of these times that of a window's first step, which `room.begun` holds from the last one on.
    """
    leans = room.leans
    leans[:] = 0.0
    for k in range(room.first[level], room.first[level + 1]):
        at, apart, by = room.spot[k, 0], room.spot[k, 1], room.law[k, 3]
        part = gap[at : at + (leans.size - 1) * apart + 1 : apart]
        for row in range(leans.size):
            leans[row] += by * part[row]
    for row in range(leans.size):
        small = exp_of_negative(-abs(leans[row]))
        leans[row] = small if leans[row] > 0.0 else 1.0 / small
    for i in range(NARROW):
        room.begun[i] = math.exp(bend * (2.0 * i - 1.0))


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _cumulate(ratios, ratio, curve, masses):
    """Compute masses from ratios of successive masses of the prior and of normal noise."""
    masses[0] = mass = 1.0
    for i in range(1, masses.size):
        mass *= ratios[i] * ratio
        ratio *= curve
        masses[i] = mass


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _cumulate_narrow(ratios, ratio, curve, masses):
    """Compute the first `NARROW` masses in the way of `_cumulate`."""
    masses[0] = mass = 1.0
    for i in range(1, NARROW):
        mass *= ratios[i] * ratio
        ratio *= curve
        masses[i] = mass


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_noise(gap, room, level, row, stride, low, logs):
    """Add the log masses of the noise at a place to `logs`, for each step."""
    for k in range(room.first[level], room.first[level + 1]):
        d, far = gap[room.spot[k, 0] + row * room.spot[k, 1]], room.change[k] * stride
        slope, curve, reach = room.law[k, 0], room.law[k, 1], room.law[k, 2]
        for i in range(logs.size):
            y = d + far * (low + i)
            away = abs(y)
            if reach < 0.0:  # -1 a lower bound, -3 an upper one
                logs[i] = (
                    logs[i]
                    if (y >= -BOUND_TOLERANCE_COUNTS if reach == -1.0 else y <= BOUND_TOLERANCE_COUNTS)
                    else -np.inf
                )
            else:
                logs[i] = logs[i] - (slope + curve * away) * away if away <= reach else -np.inf


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _message(tables, top, columns, stride, low, logs):
    """Add the log density of the root's table under a normal law to `logs`, for each step."""
    lean, bend = 0.0, 0.0
    for k in range(columns.size):
        lean += sign(k) * tables.pull[columns[k]]
        for m in range(top.size):
            lean -= sign(k) * tables.message[columns[k], m] * top[m]
        for m in range(columns.size):
            bend += sign(k) * sign(m) * tables.message[columns[k], columns[m]]
    for i in range(logs.size):
        t = stride * (low + i)
        logs[i] += (lean - 0.5 * bend * t) * t


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def log_prior_of_total(tables, total):
    """Return the log prior of the root's total, interpolated between tabulated totals."""
    x, log = tables.total, tables.log_total
    k, above = 1, x.size - 1
    while k < above:
        middle = (k + above) // 2
        k, above = (middle + 1, above) if x[middle] < total else (k, middle)
    share = min(max((total - x[k - 1]) / (x[k] - x[k - 1]), 0.0), 1.0)
    return (1.0 - share) * log[k - 1] + share * log[k]


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _add_logs(logs, masses, size):
    """Multiply masses by `exp(logs)`, scaled so that the largest factor is 1."""
    top = -np.inf
    for i in range(size):
        top = max(top, logs[i])
    for i in range(logs.size):
        masses[i] *= exp_of_negative(min(logs[i] - top, 0.0)) if top > -np.inf else 0.0


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=AT_ONCE)
def _keep(masses, own):
    """Write masses to `own`, scaled to the sum 1; return False if all are zero or some are too large.

    Loops of a length that is not known when they are compiled: those of a few known steps are written out, one by one.
    """
    total = 0.0
    for i in range(masses.size):
        total += masses[i]
    if not HUGE > total > 0.0:
        return False
    scale = 1.0 / total
    for i in range(own.size):
        own[i] = masses[i] * scale
    return True


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True, fastmath=AT_ONCE)
def _keep_wide(masses, size, tail, child, own):
    """Multiply a place's masses by the message of its parts, and write them to `own`, scaled to the sum 1."""
    total, parts = 0.0, tail[WIDE * (child + 1) : WIDE * (child + 2)]
    masses[size:WIDE] = 0.0
    for i in range(WIDE):
        masses[i] *= parts[i]
        total += masses[i]
    if not HUGE > total > 0.0:
        return False
    scale = 1.0 / total
    for i in range(WIDE):
        own[i] = masses[i] * scale
    return True


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _log_of_ratios(ratios, size, logs):
    """Compute log masses from the ratios of successive masses, beginning with 0."""
    logs[:] = 0.0
    for i in range(1, size):
        logs[i] = logs[i - 1] + math.log(ratios[i])


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def _weigh_by_logs(places, tables, state, work, columns, stride, level, room, v):
    """Compute the law of a place's steps from prior and log noise; return False if no mass is left."""
    last, row, at = places.level_ptr.size - 2, v - places.level_ptr[level], message_at(places, v)
    low, size, masses, long = work.ends[v, 0], work.ends[v, 1], room.masses, stride > LONGEST
    logs = room.logs[: NARROW if level == last else WIDE]
    for attempt in range(1 if long else 0, 2):
        # Products of the prior's ratios, and where these are too large or vanish, their logs.
        if attempt == 0:
            _cumulate(room.ratios, 1.0, 1.0, masses[:size])
            logs[:] = 0.0
        else:
            masses[:] = 1.0
            if not long:
                _log_of_ratios(room.ratios, size, logs)
            elif level == last:
                leaf_log_masses(places, state, columns, stride, row, low, size, room.balance, logs)
            else:
                _inner_logs(places, state, columns, stride, level, v, low, size, room.balance, logs)
        _log_noise(state.gap, room, level, row, stride, low, logs)
        if level == 0 and tables.pull.size:
            _message(tables, state.top, columns, stride, low, logs)
        if level == 0 and tables.total.size and columns.size == SINGLE:
            for i in range(size):
                logs[i] += log_prior_of_total(tables, state.total[0] + stride * float(low + i))
        _add_logs(logs, masses, size)
        if level == last:
            masses[size:NARROW] = 0.0
            kept = _keep(masses[:NARROW], work.own[at : at + NARROW])
        else:
            kept = _keep_wide(masses, size, work.tail, room.heads[v], work.own[at : at + WIDE])
        if kept:
            return True
    return False


@njit(cache=True, error_model="numpy", _nrt=False, forceinline=True)
def weigh_places(rng, places, tables, moves, state, work, columns, stride, level, room):
    """Compute the laws of the steps of a level's places; return False if rounding left no mass."""
    last, first, masses = places.level_ptr.size - 2, places.level_ptr[level], room.masses
    given = tables.total.size > 0 and columns.size == SINGLE
    normal, bend = level > 0 or (tables.pull.size == 0 and not given), 0.0
    for k in range(room.first[level], room.first[level + 1]):
        normal = normal and room.law[k, 0] == 0.0 and room.law[k, 2] == np.inf
        bend += room.law[k, 1] * (room.change[k] * stride) ** 2
        room.law[k, 3] = 2.0 * room.law[k, 1] * room.change[k] * stride
    curve = math.exp(-2.0 * bend)
    if normal and level == last:
        _normal_noises(state.gap, room, level, bend)
    long = stride > LONGEST
    for v in range(first, places.level_ptr[level + 1]):
        row, at = v - first, message_at(places, v)
        if level == last:
            low, size = _choose_window(rng, moves, state, columns, stride, row)
            if not long:
                leaf_mass_ratios(places, state, columns, stride, row, low, size, room.balance, room.ratios)
        else:
            child = room.heads[v]
            low, size = work.ends[child, 2], work.ends[child, 3]
            if not long:
                _inner_ratios(places, state, columns, stride, level, v, low, size, room.balance, room.ratios)
        work.ends[v, 0], work.ends[v, 1] = low, size
        if not normal or long:
            ratio = 0.0
        elif level == last:
            ratio = room.leans[row] * room.begun[-low]
        else:
            ratio = _normal_mass_ratio(state.gap, room, level, row, low, bend)
        if level == last and ratio > 0.0:
            room.ratios[size] = 0.0
            _cumulate_narrow(room.ratios, ratio, curve, masses)
            if _keep(masses[:NARROW], work.own[at : at + NARROW]):
                continue
        if level < last and ratio > 0.0:
            _cumulate(room.ratios, ratio, curve, masses[:size])
            if _keep_wide(masses, size, work.tail, child, work.own[at : at + WIDE]):
                continue
        if not _weigh_by_logs(places, tables, state, work, columns, stride, level, room, v):
            return False
    return True
