"""Laws of the noisy counts of the parts of one released split, where other splits depend on them too.

Events as in `trueup.kernel.released.exact`, of which each is one product over the parts: those without ties, those with ties in
the order of the phase of Finucan's algorithm that settled them, and that of weights that are all zero. The phase depends on the
sum of the weights: in events with ties it is carried along, part by part. They have few weights: a tie leaves each part an
interval about as long as a unit of the release.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.kernel.multinomial.mode import multinomial_mode
from trueup.kernel.released.events import enter_events
from trueup.kernel.released.exact import small_product

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]

MOST_ENTRIES = 2**25
"""Largest table of the events of a split by its parts and their sums."""
MAX_EVENT_DEPTH_NATS = 45.0
"""Events this far (log mass) below the largest are left out."""
ROUNDING = 1e-15
"""Share of the largest mass of a sum below which a transform holds nothing but rounding errors."""


class NoisyReading(NamedTuple):
    """Probabilities of a node's weight and of the counts released below it, given the node's noisy count.

    `noise` holds the masses of its noisy count; weights that are not part of any split are one.
    """

    low: int
    noise: Reals
    least: int
    table: Reals

    @property
    def weights(self) -> Integers:
        """Return the weight to which each column of the table belongs."""
        return self.least + np.arange(self.table.shape[1])


class SplitEvents(NamedTuple):
    """The events that lead to one released split, each a range of noisy counts for every part.

    Attributes
    ----------
    worth
        For each part, factors `(events, weights)` of its weights in each event.
    log
        (events,) log masses beside that.
    order
        (events,) the order of its ties (0 where Finucan's algorithm adds, 1 where it removes); -1 without ties.
    tie
        (events, parts) weight of a part that ties without having entered; -1 if there is none.
    enter
        (events, 2) released count and weight of the last part to enter.
    """

    worth: list[Reals]
    log: Reals
    order: Integers
    tie: Integers
    enter: Integers

    def take(self, kept: NDArray) -> SplitEvents:
        """Return the events at the given positions."""
        worth = [one[kept] for one in self.worth]
        return SplitEvents(worth, self.log[kept], self.order[kept], self.tie[kept], self.enter[kept])

    def has(self, event: int, tied: bool, total: int, trials: int) -> bool:
        """Return True if an event allows weights with the given sum and ties."""
        if self.order[event] < 0:
            return True
        k, a = self.enter[event].tolist()
        adds = 2 * total * k > (2 * trials + len(self.worth)) * a
        return tied and adds == (self.order[event] == 0)


def mode_events(k: Integers, readings: list[NoisyReading], even: float) -> SplitEvents:
    """Return the ranges of the parts' weights for which the given counts are a multinomial mode."""
    weights = [one.weights for one in readings]
    low, high, enter = enter_events(k, np.array([w[0] for w in weights]), np.array([w[-1] for w in weights]))
    refuse_large_splits(sum(len(low) * w.size for w in weights))
    untied = np.minimum(high[::2], high[1::2])
    tie = np.where(high > np.repeat(untied, 2, axis=0), high, -1)
    tie = np.where(tie <= [w[-1] for w in weights], tie, -1)
    at = np.flatnonzero((tie >= 0).any(axis=1))
    nothing, zeros = np.full((len(untied) + 1, k.size), -1), np.zeros((1, k.size), np.int64)
    low, high = np.vstack([low[::2], zeros, low[at]]), np.vstack([untied, zeros, high[at]])
    worth = [((w >= a[:, None]) & (w <= b[:, None])).astype(float) for w, a, b in zip(weights, low.T, high.T)]
    log = np.zeros(len(low))
    log[len(untied)] = np.log(even) if even > 0 else -np.inf
    order = np.concatenate([nothing[:, 0], at % 2])
    enter = np.vstack([enter[::2], zeros[:, :1].repeat(2, axis=1), enter[at]])
    return SplitEvents(worth, log, order, np.vstack([nothing, tie[at]]), enter)


def draw_events(k: Integers, readings: list[NoisyReading], u: float, even: bool) -> SplitEvents:
    """Return the two events behind a multinomial draw given u: any weights, or all weights zero."""
    worth, log = [], np.array([0.0, -np.inf])
    for count, w in zip(k.tolist(), (one.weights for one in readings)):
        with np.errstate(divide="ignore"):
            each = -u * (w - count) + (count * np.log(w / count) if count else 0.0)
        worth.append(np.array([np.exp(each), w == 0]))
    if even:
        least, seen = np.maximum(k, 1).sum(), k[k > 0]
        log[1] = k.sum() * np.log(least / k.size) - least * u + (seen * (u - np.log(seen))).sum()
    return SplitEvents(worth, log, *(np.full(size, -1) for size in (2, (2, k.size), (2, 2))))


class ReleasedSplit(NamedTuple):
    """One released split: the events that lead to it, with laws of its parts' noisy counts.

    Attributes
    ----------
    children, member
        (c,) nodes, and of which part of the split each is, -1 if of none.
    events, trials
        The events of the split, and its released total.
    low
        (c,) least noisy counts.
    noisy
        For each child, normalised masses `(events, counts)` of its noisy count; one row if all events have the same.
    log
        (events,) log masses.
    spectrum
        (events, frequencies) of the normalised masses of the sum of the noisy counts.
    """

    children: Integers
    member: Integers
    events: SplitEvents
    trials: int
    low: Integers
    noisy: list[Reals]
    log: Reals
    spectrum: NDArray[np.complex128]

    @property
    def size(self) -> int:
        """Return the length of the Fourier transform of the noisy counts' sum."""
        return transform_size(self.noisy)

    def summed(self) -> tuple[int, Reals, float]:
        """Return the first value of the noisy counts' sum, the masses of the sum, and the log of a common factor."""
        top = self.log.max()
        spectrum = np.einsum("e,ef->f", np.exp(self.log - top), self.spectrum)
        masses = np.fft.irfft(spectrum, self.size)
        held = np.flatnonzero(masses > ROUNDING * masses.max())
        first, last = int(held[0]), int(held[-1]) + 1
        masses = np.where(masses > ROUNDING * masses.max(), masses, 0.0)[first:last]
        return int(self.low.sum()) + first, masses, float(top)

    def at(self, total: int) -> Reals:
        """Return the mass of each event, up to a constant, given the sum of the noisy counts."""
        size, log = self.size, self.log - self.log.max()
        wave = np.exp(2j * np.pi * np.arange(size // 2 + 1) * (total - int(self.low.sum())) / size)
        wave[1 : (size + 1) // 2] *= 2
        return np.maximum(np.einsum("ef,f->e", self.spectrum, wave).real, 0.0) * np.exp(log)

    def tails(self, event: int) -> list[Reals]:
        """Return, for each child, the masses of the sum of noisy counts from this child to the last."""
        found = [np.ones(1)]
        for noise in reversed(self.noisy):
            found.insert(0, np.convolve(noise[min(event, len(noise) - 1)], found[0]).astype(float))
        return found


def join_split(
    children: Integers, member: Integers, readings: list[NoisyReading], events: SplitEvents, trials: int
) -> ReleasedSplit | None:
    """Return a split's events with the laws of its children's noisy counts, or None if none is possible."""
    noisy, log = [], events.log
    for part, one in zip(member.tolist(), readings):
        worth = np.ones((1, one.table.shape[1])) if part < 0 else events.worth[part]
        masses = one.noise * small_product(worth, one.table.T)
        whole = masses.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore"):
            log = log + np.log(whole[:, 0])
        noisy.append(np.divide(masses, whole, out=np.zeros_like(masses), where=whole > 0))
    if log.max() == -np.inf:
        return None
    kept = log > log.max() - MAX_EVENT_DEPTH_NATS
    events, log = events.take(kept), log[kept]
    noisy = [one if len(one) == 1 else one[kept] for one in noisy]
    size = transform_size(noisy)
    refuse_large_splits(log.size * children.size * size)
    tied, untied = np.flatnonzero(events.order >= 0), np.flatnonzero(events.order < 0)
    product = np.ones((untied.size, size // 2 + 1), complex)
    for one in noisy:
        product *= np.fft.rfft(one if len(one) == 1 else one[untied], size, axis=1)
    spectrum = np.empty((log.size, size // 2 + 1), complex)
    spectrum[untied] = product
    by_weight = [
        _weight_spectra(part, one, events, tied, size) for part, one in zip(member.tolist(), readings)
    ]
    for event in tied.tolist():
        spectrum[event], share = _tied(event, member, by_weight, events, trials, size)
        log[event] = events.log[event] + share
    low = np.array([one.low for one in readings])
    split = ReleasedSplit(children, member, events, trials, low, noisy, log, spectrum)
    return split if log.max() > -np.inf else None


def _weight_spectra(
    part: int, one: NoisyReading, events: SplitEvents, tied: Integers, size: int
) -> dict[int, tuple[int, NDArray]]:
    """Return, for each weight in events with ties, the spectrum of the noisy counts that have it.

    A child that is no part has the one weight 0, whatever its own.
    """
    if part < 0:
        return {0: (0, np.fft.rfft(one.noise * one.table.sum(axis=1), size))}
    columns = np.flatnonzero((events.worth[part][tied] > 0).any(axis=0) & one.table.any(axis=0))
    each = np.fft.rfft(one.noise[:, None] * one.table[:, columns], size, axis=0).T
    return dict(zip((one.least + columns).tolist(), zip(columns.tolist(), each)))


def _tied(
    event: int,
    member: Integers,
    by_weight: list[dict[int, tuple[int, NDArray]]],
    events: SplitEvents,
    trials: int,
    size: int,
) -> tuple[NDArray, float]:
    """Return the spectrum of the noisy counts' sum in an event with ties, and the event's log mass."""
    state: dict[tuple[bool, int], NDArray] = {(False, 0): np.ones(size // 2 + 1, complex)}
    for part, weights in zip(member.tolist(), by_weight):
        found: dict[tuple[bool, int], NDArray] = {}
        for a, (column, own) in weights.items():
            if part >= 0 and events.worth[part][event, column] == 0:
                continue
            for (tied, total), spectrum in state.items():
                key = tied or (part >= 0 and a == events.tie[event, part]), total + a
                found[key] = found.get(key, 0) + spectrum * own
        state = found
    held = [spectrum for (tied, total), spectrum in state.items() if events.has(event, tied, total, trials)]
    spectrum = np.sum(held, axis=0) if held else np.zeros(size // 2 + 1, complex)
    whole = spectrum[0].real
    return (spectrum / whole, float(np.log(whole))) if whole > 0 else (0 * spectrum, -np.inf)


def transform_size(noisy: list[Reals]) -> int:
    """Return the length of the fast Fourier transform that suffices for a sum of noisy counts."""
    return 1 << max(sum(one.shape[-1] - 1 for one in noisy).bit_length(), 1)


def compatible_order(k: Integers, weights: Integers, rng: np.random.Generator) -> Integers:
    """Draw an order of a split's parts in which the multinomial mode of their weights is k.

    Of parts that tie, those that got a unit come first where Finucan's algorithm adds, and last where it removes.

    Examples
    --------
    >>> k, weights = np.array([1, 0, 1]), np.full(3, 2)
    >>> order = compatible_order(k, weights, np.random.default_rng(0))
    >>> np.array_equal(multinomial_mode(weights[order], 2), k[order])
    True
    """
    a = weights if weights.any() else np.ones_like(weights)
    order, last = rng.permutation(k.size), np.argmax(np.where(k > 0, k / np.maximum(a, 1), -1.0))
    got = (k > 0) & (k * a[last] == k[last] * a)
    at = np.flatnonzero((got | ((k + 1) * a[last] == k[last] * a))[order])
    order[at] = order[at][np.argsort(~got[order[at]], kind="stable")]
    if not np.array_equal(multinomial_mode(a[order], int(k.sum())), k[order]):
        order[at] = order[at][np.argsort(got[order[at]], kind="stable")]
    return order


def refuse_large_splits(entries: int) -> None:
    """Refuse a split whose tables of events would have too many entries."""
    if entries > MOST_ENTRIES:
        raise SpecError(
            f"the exact posterior needs tables of {entries:.2g} probabilities of noisy parts, which are too large",
            needed=f"at most {MOST_ENTRIES:,} probabilities: totals of fewer parts, or less noise",
            remedy="use the measurements with 'tree-exact', where they are public",
        )
