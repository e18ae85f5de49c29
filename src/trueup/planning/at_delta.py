"""Budgets given as an epsilon at a delta: the largest one in the spec's currency whose exact loss is within it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import exp, log

from trueup.errors import ConvergenceError, SpecError
from trueup.model.mechanism import noise_parts
from trueup.model.problem import Problem
from trueup.noise.rational import rational
from trueup.planning.allocation import Allocation
from trueup.planning.planned_spec import planned_spec
from trueup.privacy.parts import NoisePart, tight_epsilon
from trueup.privacy.shown import outward

NEEDED = "EPSILON@DELTA, such as 8@1e-10, with a delta between 0 and 1"
CLOSE, FURTHEST, TRIES, ROUNDS = 1e-7, 2.0, 40, 8
"""How near, as a share, epsilon is to what is given; the largest step of the logarithm of a budget; how often a loss is worked
out, and a plan made, at most."""


@dataclass(frozen=True)
class EpsilonAtDelta:
    """An epsilon at a delta.

    Examples
    --------
    >>> EpsilonAtDelta.read("8@1e-10").epsilon
    Fraction(8, 1)
    """

    epsilon: Fraction
    delta: Fraction

    @classmethod
    def read(cls, text: str) -> EpsilonAtDelta:
        """Read `8@1e-10`; raise SpecError if it is malformed."""
        epsilon, at, delta = text.partition("@")
        if not at:
            raise SpecError(f"the total '{text}' cannot be read", needed=NEEDED)
        found = cls(rational(epsilon, "the epsilon of the total"), rational(delta, "the delta of the total"))
        if found.delta >= 1:
            raise SpecError(f"the delta of the total '{text}' is 1 or more", needed=NEEDED)
        return found

    def factor(self, parts: Sequence[NoisePart]) -> Fraction:
        """Return a nearly maximal factor for the cost of all noise within it.

        Epsilon grows about like a power of the cost, between a square root and the cost itself; the power is that of the
        last two steps.
        """

        def loss(factor: Fraction) -> tuple[Fraction, float]:
            epsilon = tight_epsilon([part.scaled(factor) for part in parts], self.delta)
            return epsilon, _log(epsilon)

        aim, at, power = _log(self.epsilon), Fraction(1), 1.5
        epsilon, found = loss(at)
        for _ in range(TRIES):
            if epsilon <= self.epsilon and aim - found <= CLOSE:
                return at
            step = min(max(power * (aim - CLOSE / 2 - found), -FURTHEST), FURTHEST)
            new = Fraction(float(at) * exp(step))
            epsilon, reached = loss(new)
            power = min(max(step / (reached - found), 0.25), 4.0) if reached != found else 1.5
            at, found = new, reached
        raise ConvergenceError(
            "no budget was found that has this epsilon at this delta",
            needed="a larger epsilon, or a larger delta",
        )


def _log(epsilon: Fraction) -> float:
    """Return the logarithm of epsilon; a very small one for zero."""
    return log(max(float(epsilon), 1e-300))


def plan_at_delta(
    problem: Problem, wanted: EpsilonAtDelta, total: Fraction, plan: Callable[[Fraction], Allocation]
) -> Allocation:
    """Plan the largest total within an epsilon at a delta.

    Parameters
    ----------
    problem
        With the spec that is planned.
    wanted
        The epsilon and the delta.
    total
        Where to begin, in the currency of the spec.
    plan
        Divides a total.

    Raises
    ------
    SpecError, ConvergenceError
        If there is no such total.
    """
    for _ in range(ROUNDS):
        planned = plan(total)
        spec = planned_spec(problem, planned)
        made = Problem(spec, problem.cells)
        parts = noise_parts(spec, made.constraints, made.headers)
        factor = wanted.factor(parts)
        if 0 <= factor - 1 <= 20 * CLOSE:  # what was planned is within it
            cost = f"epsilon = {outward(wanted.epsilon)} at delta = {outward(wanted.delta)}"
            sentence = (
                f"One step costs at most {cost} with these budgets, by the exact losses of their noise."
            )
            told = replace(planned.certificate, sentences=(*planned.certificate.sentences, sentence))
            return replace(planned, certificate=told)
        total = Fraction(f"{float(total * factor) * (1 - 4 * CLOSE):.12g}")
    raise ConvergenceError(
        "the division changes with the total, so that none was found",
        remedy="give the total in the spec's currency",
    )
