"""The table of inputs that infer refuses: each by its name, with the labels of what is at fault."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np

from tests.inferring.problems import (
    families,
    family_constraints,
    laplace_tree,
    star,
    states,
    tree_constraints,
)
from trueup.errors import ConvergenceError, DataError, InfeasibleError, SpecError
from trueup.inferring import infer, inference_method
from trueup.inferring.inequalities import LinearInequalities
from trueup.inferring.released_multinomial import ReleasedMultinomial
from trueup.inferring.tree_exact import TreeExact
from trueup.io.published.nmf import read_nmf
from trueup.io.published.sdhc import PUBLISHED, read_sdhc
from trueup.model.cells import Margin
from trueup.model.constraints import Bound
from trueup.model.header import Measured
from trueup.model.records.measurements import Measurements
from trueup.model.records.release import Release
from trueup.model.spec import load_spec
from trueup.noise import DiscreteGaussian, DiscreteLaplace, Exact
from trueup.reconciling import describe
from trueup.reconciling.multinomial import MultinomialMode, MultinomialSample

ONE, HALF = DiscreteLaplace(Fraction(1)), DiscreteLaplace(Fraction(1, 2))
ROWS = """REGION_ID|REGION_TYPE|ITERATION_CODE|PH4_DATA_CELL|COUNT|NOISE_DISTRIBUTION|VARIANCE
01|STATE|A|2|-3|Discrete Gaussian|144
01|STATE|A|3|50|Discrete Gaussian|144
"""


def parts(headers, values, method=None, **constraints):
    """Infer two parts of one total."""
    cells = star(2)
    measured = Measurements(cells, tuple(headers), tuple(map(np.array, values)), PUBLISHED)
    return infer(measured, method or TreeExact(), spec=tree_constraints(cells, **constraints), draws=10)


def rules(*texts, draws=10, method=None):
    """Infer three counts of one place under linear rules."""
    cells = families(1)
    header = Measured("m", cells.finest, DiscreteGaussian(Fraction(400)))
    measured = Measurements(cells, (header,), (np.array([30, 60, 25]),), PUBLISHED)
    return infer(measured, method or LinearInequalities(), spec=family_constraints(cells, texts), draws=draws)


def behind(counts, method, by=None, headers=None):
    """Infer the counts behind a release of one total and its parts."""
    cells = star(len(counts))
    headers = headers or (Measured("q", Margin("all"), ONE), Measured("q", Margin("part"), ONE))
    zeros = tuple(np.zeros(cells.size(h.margin), np.int64) for h in headers)
    measured = Measurements(cells, tuple(headers), zeros, PUBLISHED)
    record = describe(by or MultinomialMode())
    release = Release(measured, np.array(counts), record, {}, {}, (cells.finest,))
    return infer(release, method, spec=tree_constraints(cells), draws=10)


def behind_tree(counts, method, by=None, *, leave_out=None):
    """Infer the counts behind a release of two states of two counties."""
    cells = states((2, 2))
    laws = laplace_tree(cells)
    headers = tuple(Measured("q", m, law) for m, law in laws.items() if m.level != leave_out)
    zeros = tuple(np.zeros(cells.size(h.margin), np.int64) for h in headers)
    release = Release(Measurements(cells, headers, zeros, PUBLISHED), np.array(counts), describe(by or MultinomialMode()),
                      {}, {}, (cells.finest,))  # fmt: skip
    return infer(release, method, spec=tree_constraints(cells), draws=10)


def sdhc(old, new):
    """Read a noisy table with one text replaced."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ph4.csv"
        path.write_text(ROWS.replace(old, new, 1))
        return read_sdhc(load_spec("examples/sdhc/ph4.toml"), [path])


def noisy(law=ONE):
    return Measured("total", Margin("all"), law), Measured("total", Margin("part"), law)


BAD = [
    ("rules that exclude each other", InfeasibleError, "'families >= 1' and",
     lambda: rules("families >= 1", "under18 + over18 >= 3 * families", "under18 + over18 <= 2 * families")),
    ("a bound that a rule excludes", InfeasibleError, "the lower bound of 'under18'",
     lambda: rules("under18 <= -1")),
    ("invariants and bounds that exclude each other", InfeasibleError, "'all' and its parts",
     lambda: parts([Measured("invariant", Margin("all"), Exact())], [[5]], bounds=(Bound(Margin("part"), lower=4),))),
    ("an improper posterior", SpecError, "nothing limits the count of 'p0001'",
     lambda: parts([Measured("total", Margin("part"), ONE, np.array([0]))], [[3]])),
    ("an interval level of 1.5", SpecError, "is not a probability",
     lambda: infer(Measurements(star(2), (), (), PUBLISHED), spec=tree_constraints(star(2)), level=1.5)),
    ("an unknown prior", SpecError, "there is no prior 'jeffreys'", lambda: TreeExact(prior="jeffreys")),  # pyright: ignore[reportArgumentType]
    ("an unknown key inside a prior", SpecError, "no parameter 'size'",
     lambda: inference_method("tree-exact", {"prior": {"name": "poisson", "mean": 3, "size": 2}})),
    ("a prior for another number of cells", SpecError, "3 values of 'mean'",
     lambda: parts(noisy(), [[9], [4, 5]], TreeExact(prior={"name": "poisson", "mean": [1, 2, 3]}))),  # pyright: ignore[reportArgumentType]
    ("measurements that contradict each other beyond any table", ConvergenceError, "contradict each other",
     lambda: parts(noisy(DiscreteLaplace(Fraction(100))), [[2_000_000], [5, 5]])),
    ("an unknown law in a published file", DataError, "'Cauchy' is unknown", lambda: sdhc("Discrete Gaussian", "Cauchy")),
    ("a variance of zero in a published file", DataError, "VARIANCE '0'", lambda: sdhc("|144", "|0")),
    ("a missing variance in a published file", DataError, "VARIANCE", lambda: sdhc("|144", "|")),
    ("a folder without noisy-measurement files", DataError, "no files for level",
     lambda: read_nmf(load_spec("examples/sdhc/ph4.toml"), "nowhere")),
    ("released counts that no noisy counts lead to", InfeasibleError, "cannot have released",
     lambda: behind([500, 900], ReleasedMultinomial(prior={"name": "bounded", "upper": 0}))),  # pyright: ignore[reportArgumentType]
    ("zeros that the prior excludes", InfeasibleError, "released as zero",
     lambda: behind([0, 0], ReleasedMultinomial(prior={"name": "masses", "masses": [0, 1]}),  # pyright: ignore[reportArgumentType]
                    headers=[Measured("invariant", Margin("all"), Exact()), Measured("q", Margin("part"), ONE)])),
    ("a release by another method than stated", SpecError, "not by 'multinomial-sample'",
     lambda: behind([3, 4], ReleasedMultinomial(release="sample"))),
    ("a release with other parameters than stated", SpecError, "algorithm = 1, not 2",
     lambda: behind([3, 4], ReleasedMultinomial(release="sample"), MultinomialSample(algorithm=1))),
    ("a release whose law of summed noise was simulated", SpecError, "monte_carlo = 10000",
     lambda: behind([3, 4], ReleasedMultinomial(total="summed"), MultinomialMode(total="summed", monte_carlo=10_000))),
    ("a released tree with a level that was not measured", SpecError, "'state' has none",
     lambda: behind_tree([3, 4, 0, 1], ReleasedMultinomial(), leave_out="state")),
    ("released counts of a tree far from what the prior allows", InfeasibleError, "near the released ones",
     lambda: behind_tree([300, 4, 0, 1], ReleasedMultinomial(prior={"name": "bounded", "upper": 9}))),  # pyright: ignore[reportArgumentType]
    ("releases that are mixed", SpecError, "exactly one noisy value of each part",
     lambda: behind([3, 4], ReleasedMultinomial(), headers=[noisy()[0], noisy()[1], noisy()[1]])),
    ("measurements where released counts are needed", SpecError, "needed: a release",
     lambda: parts(noisy(), [[9], [4, 5]], ReleasedMultinomial())),
]  # fmt: skip
