"""The table of inputs that the laws refuse; `docs/bad-input.md` shows it beside what peers do."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import numpy as np

from trueup.errors import PrivacyError, SpecError
from trueup.noise import (
    DiscreteGaussian,
    DiscreteLaplace,
    Exact,
    Gaussian,
    Laplace,
    Sensitivity,
    TruncatedGeometric,
    law_named,
)

ONE = Sensitivity.of(1, 1)


def words(count: int) -> bytes:
    """Give the same bytes always: nothing here may get as far as a draw."""
    return bytes(count)


# what is tried, the call, the error, and words of its message
BAD = [
    ("epsilon 0", lambda: DiscreteLaplace(0), SpecError, "above zero"),
    ('epsilon "0"', lambda: DiscreteLaplace("0"), SpecError, "above zero"),
    ('epsilon "0.0"', lambda: DiscreteLaplace("0.0"), SpecError, "above zero"),
    ('epsilon "0/7"', lambda: DiscreteLaplace("0/7"), SpecError, "above zero"),
    ("epsilon -1", lambda: DiscreteLaplace(-1), SpecError, "above zero"),
    ('epsilon "-1/2"', lambda: DiscreteLaplace("-1/2"), SpecError, "above zero"),
    (
        "epsilon as a float that means another number",
        lambda: DiscreteLaplace(0.1),
        SpecError,
        '"0.1" or "1/10"',
    ),
    ("epsilon as any other float", lambda: DiscreteLaplace(0.5), SpecError, '"0.5" or "1/2"'),
    ("epsilon as a NumPy float", lambda: DiscreteLaplace(np.float64(0.1)), SpecError, '"0.1" or "1/10"'),
    (
        "epsilon as a NumPy 32-bit float",
        lambda: DiscreteLaplace(np.float32(0.5)),
        SpecError,
        '"0.5" or "1/2"',
    ),
    ("epsilon not a number", lambda: DiscreteLaplace(float("nan")), SpecError, "finite"),
    ("epsilon infinite", lambda: DiscreteLaplace(float("inf")), SpecError, "finite"),
    ('epsilon "nan"', lambda: DiscreteLaplace("nan"), SpecError, "finite"),
    ('epsilon "inf"', lambda: DiscreteLaplace("inf"), SpecError, "finite"),
    ("epsilon as a Decimal NaN", lambda: DiscreteLaplace(Decimal("NaN")), SpecError, "finite"),
    ("epsilon as a Decimal infinity", lambda: DiscreteLaplace(Decimal("Infinity")), SpecError, "finite"),
    ("epsilon True", lambda: DiscreteLaplace(True), SpecError, "epsilon is True"),
    ("epsilon as a NumPy bool", lambda: DiscreteLaplace(np.bool_(True)), SpecError, "epsilon is"),
    ("epsilon None", lambda: DiscreteLaplace(None), SpecError, "NoneType"),
    ("epsilon complex", lambda: DiscreteLaplace(1j), SpecError, "complex"),
    ("epsilon an array", lambda: DiscreteLaplace(np.array([1])), SpecError, "ndarray"),
    ("epsilon a list", lambda: DiscreteLaplace([1]), SpecError, "list"),
    ("epsilon bytes", lambda: DiscreteLaplace(b"1"), SpecError, "bytes"),
    ('epsilon ""', lambda: DiscreteLaplace(""), SpecError, "epsilon is ''"),
    ('epsilon "one"', lambda: DiscreteLaplace("one"), SpecError, "'one'"),
    ('epsilon "1/0"', lambda: DiscreteLaplace("1/0"), SpecError, "denominator"),
    ('epsilon "1/2/3"', lambda: DiscreteLaplace("1/2/3"), SpecError, "'1/2/3'"),
    ('epsilon "0,5" (comma)', lambda: DiscreteLaplace("0,5"), SpecError, "'0,5'"),
    ('epsilon "1_000"', lambda: DiscreteLaplace("1_000"), SpecError, "'1_000'"),
    ('epsilon "0x10"', lambda: DiscreteLaplace("0x10"), SpecError, "'0x10'"),
    ("epsilon in Arabic digits", lambda: DiscreteLaplace("\u0661"), SpecError, "finite"),
    (
        "epsilon with an exponent that fills the memory",
        lambda: DiscreteLaplace("1e999999999"),
        SpecError,
        "finite",
    ),
    ("epsilon as a text of 10,000 digits", lambda: DiscreteLaplace("1" * 10_000), SpecError, "a str"),
    ("epsilon so small that noise exceeds any count", lambda: DiscreteLaplace("1e-9"), SpecError, "wider"),
    (
        "epsilon so large that there is no noise",
        lambda: DiscreteLaplace("1e9"),
        SpecError,
        "practically no noise",
    ),
    ("sigma2 0", lambda: DiscreteGaussian(0), SpecError, "above zero"),
    ("sigma2 -1", lambda: DiscreteGaussian(-1), SpecError, "above zero"),
    ("sigma2 as a float", lambda: DiscreteGaussian(2.0), SpecError, '"2.0" or "2"'),
    ("sigma2 infinite", lambda: DiscreteGaussian(float("inf")), SpecError, "finite"),
    ("sigma2 True", lambda: DiscreteGaussian(True), SpecError, "sigma2 is True"),
    ("sigma2 beyond 2^56", lambda: DiscreteGaussian(10**17), SpecError, "wider"),
    ("sigma2 below 2^-56", lambda: DiscreteGaussian("1e-20"), SpecError, "practically no noise"),
    ("bound 0", lambda: TruncatedGeometric(1, 0), SpecError, "above zero"),
    ("bound -50", lambda: TruncatedGeometric(1, -50), SpecError, "above zero"),
    ("bound 1/2", lambda: TruncatedGeometric(1, Fraction(1, 2)), SpecError, "whole number"),  # type: ignore[arg-type]
    ("bound 50.0", lambda: TruncatedGeometric(1, 50.0), SpecError, "float 50.0"),  # type: ignore[arg-type]
    ("bound True", lambda: TruncatedGeometric(1, True), SpecError, "bound is True"),
    ("bound 20,000", lambda: TruncatedGeometric(1, 20_000), SpecError, "discrete-laplace"),
    ("bound 10^30", lambda: TruncatedGeometric(1, 10**30), SpecError, "beyond"),
    ("scale 0", lambda: Laplace(0), SpecError, "above zero"),
    ("scale as a float", lambda: Laplace(1.5), SpecError, '"1.5" or "3/2"'),
    ("variance 0", lambda: Gaussian(0), SpecError, "above zero"),
    ("a budget of 0", lambda: DiscreteLaplace.for_budget(Fraction(0), ONE), SpecError, "above zero"),
    ("a negative budget", lambda: DiscreteGaussian.for_budget(Fraction(-1), ONE), SpecError, "above zero"),
    ("a budget as a float", lambda: DiscreteLaplace.for_budget(0.1, ONE), SpecError, '"0.1"'),  # type: ignore[arg-type]
    ("a budget of NaN", lambda: DiscreteGaussian.for_budget(float("nan"), ONE), SpecError, "finite"),  # type: ignore[arg-type]
    (
        "a sensitivity of 0",
        lambda: DiscreteLaplace.for_budget(Fraction(1), Sensitivity.of(0, 1)),
        SpecError,
        "L1",
    ),
    ("a budget for an invariant", lambda: Exact.for_budget(Fraction(1), ONE), SpecError, "invariant"),
    (
        "drawing continuous Laplace noise",
        lambda: Laplace(1).sample(1, words),
        PrivacyError,
        "discrete-laplace",
    ),
    (
        "drawing continuous Gaussian noise",
        lambda: Gaussian(1).sample(1, words),
        PrivacyError,
        "discrete-gaussian",
    ),
    (
        "a source of randomness that is stuck",
        lambda: DiscreteLaplace(1).sample(1, bytes),
        PrivacyError,
        "did not decide",
    ),
    ("-1 draws", lambda: DiscreteLaplace(1).sample(-1, words), SpecError, "size is -1"),
    ("1.0 draws", lambda: DiscreteLaplace(1).sample(1.0, words), SpecError, "float"),  # type: ignore[arg-type]
    ("True draws", lambda: DiscreteLaplace(1).sample(True, words), SpecError, "bool"),
    ('"3" draws', lambda: DiscreteLaplace(1).sample("3", words), SpecError, "str"),  # type: ignore[arg-type]
    ("a quantile at 1.5", lambda: DiscreteLaplace(1).quantile(1.5), SpecError, "outside"),
    ("a quantile at NaN", lambda: DiscreteGaussian(1).quantile(float("nan")), SpecError, "outside"),
    ("an unknown law", lambda: law_named("gausian"), SpecError, "did you mean 'gaussian'"),
    ("a law in capitals", lambda: law_named("DISCRETE"), SpecError, "one of"),
    ("a law that is no text", lambda: law_named(None), SpecError, "NoneType"),
    ("an unknown parameter", lambda: DiscreteLaplace.from_parameters({"sigma": "1"}), SpecError, "'epsilon'"),
    (
        "a missing parameter",
        lambda: TruncatedGeometric.from_parameters({"epsilon": "1"}),
        SpecError,
        "'bound'",
    ),
    ("an unreadable parameter", lambda: DiscreteGaussian.from_parameters({"sigma2": "x"}), SpecError, "'x'"),
]
