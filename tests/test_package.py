"""Promises of the package as a whole: light imports, one source of entropy, one line per method."""

from __future__ import annotations

import ast
import json
import os
import pkgutil
import re
import shutil
import statistics
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "trueup"


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _seconds(code: str) -> float:
    """Processor seconds of a program: on an idle machine its time, on a busy one still its own."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def _medians(*codes: str, rounds: int = 7) -> list[float]:
    """Median seconds of each program, in interleaved runs."""
    taken = [[_seconds(code) for code in codes] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*taken)]


def test_importing_trueup_takes_less_than_twice_numpy():
    nothing, numpy, trueup = _medians("pass", "import numpy", "import trueup")
    assert trueup - nothing < 2 * (numpy - nothing)


def test_help_takes_less_than_half_a_second():
    best = min(
        _seconds("import sys; sys.argv = ['trueup', '--help']; from trueup.cli import main; main()")
        for _ in range(5)
    )
    assert best < 0.5


def test_parts_of_scipy_load_only_when_a_method_needs_them():
    """Together they take longer to import than all of trueup."""
    code = "import sys, trueup.releasing.pipeline; print(*(name for name in sys.modules if name.startswith('scipy.')))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    heavy = {f"scipy.{part}" for part in ("optimize", "sparse", "stats", "signal", "special", "linalg")}
    assert not heavy & set(loaded.split())


LIGHT_RELEASE = """
import sys
import tomllib
from trueup.cli import main
try:
    main()
except SystemExit:
    print(*sys.modules)
"""


def loaded_by(folder, *given):
    """Names of the modules that a command loads."""
    run = subprocess.run(
        [sys.executable, "-c", LIGHT_RELEASE, *given], cwd=folder, check=True, capture_output=True, text=True
    )
    return set(run.stdout.splitlines()[-1].split())


def test_a_lattice_release_loads_only_what_it_needs(tmp_path):
    """The command takes seconds in all: other tables, engines, methods of inference and figures stay out."""
    areas = [
        f"{state:02d},{state:02d}{county:03d},{40 + county}" for state in range(2) for county in range(3)
    ]
    (tmp_path / "areas.csv").write_text("state,county,pop\n" + "\n".join(areas) + "\n")
    spec = (ROOT / "examples" / "us-counties-lattice.toml").read_text()
    labels = ('label = "state_name"\n', 'label = "county_name"\n')
    for label in labels:
        spec = spec.replace(label, "")
    (tmp_path / "spec.toml").write_text(spec)
    given = ["release", "spec.toml", "--data", "areas.csv", "--out", "out", "--json"]
    loaded = loaded_by(tmp_path, *given)
    assert (tmp_path / "out" / "public" / "report.html").exists()
    tables = {"pandas", "pyarrow", "polars", "narwhals", "pyspark"}
    science = {f"scipy.{part}" for part in ("optimize", "stats", "signal", "special", "interpolate")}
    own = {
        f"trueup.{part}"
        for part in ("inferring", "assessing", "synth", "releasing.start", "run.local", "run.spark")
    }
    assert "trueup.kernel.lattice_samplers.free" in loaded
    unneeded = tables | science | own | {"matplotlib", "cvxpy", "highspy"}
    assert sorted(loaded & unneeded) == []


FEW_PLACES = """
format = 2
title = "States by sex"
table = { name = "people", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "nation" }, { name = "state", column = "state" }]
"""
BY_SEX = """
attribute = [{ name = "sex", values = ["f", "m"] }]
query = [
  { name = "total", epsilon = { nation = "1/4", state = "1/4" } },
  { name = "sex", attributes = ["sex"], epsilon = { nation = "1/4", state = "1/4" } },
]
"""


@pytest.mark.thorough
def test_a_release_and_a_posterior_load_few_modules(tmp_path):
    """Each is read from the disk, and takes as long as some kernels of a small table."""
    totals = 'query = [{ name = "total", epsilon = { nation = "1/4", state = "1/4" } }]\n'
    (tmp_path / "totals.toml").write_text(FEW_PLACES + totals)
    (tmp_path / "by-sex.toml").write_text(FEW_PLACES + BY_SEX)
    (tmp_path / "totals.csv").write_text("state,n\na,40\nb,41\nc,42\n")
    (tmp_path / "by-sex.csv").write_text("state,sex,n\na,f,20\na,m,20\nb,f,20\nb,m,21\nc,f,21\nc,m,21\n")
    for most, *given in (
        (103, "release", "totals.toml", "--data", "totals.csv", "--out", "totals"),
        (146, "release", "by-sex.toml", "--data", "by-sex.csv", "--out", "by-sex"),
        (125, "infer", "by-sex", "--out", "posterior"),
    ):
        own = [name for name in loaded_by(tmp_path, *given) if name.split(".")[0] == "trueup"]
        assert len(own) <= most, given


def test_entropy_is_fetched_in_one_place_only():
    fetchers = {"urandom", "RAND_bytes", "getrandom", "secrets", "SystemRandom"}
    for path in SOURCE.rglob("*.py"):
        named: set[str] = set()
        for node in ast.walk(_parsed(path)):
            if isinstance(node, ast.Name):
                named.add(node.id)
            elif isinstance(node, ast.Attribute):
                named.add(node.attr)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                named.update(alias.name for alias in node.names)
        held = fetchers & named
        # Keys of the studio's page and of the keeper are no noise, and nothing that is drawn comes near them.
        keys = (SOURCE / "studio" / "security.py", SOURCE / "ledger" / "keeper.py")
        allowed = path in (SOURCE / "measuring" / "entropy.py", *keys)
        assert not held or allowed, f"{path} fetches entropy: {held}"


def test_no_generator_is_unseeded():
    """`default_rng()` without an argument would make post-processing unrepeatable."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(_parsed(path)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "default_rng"
            ):
                assert node.args, f"{path}:{node.lineno} makes an unseeded generator"


TRIVIAL = '''"""A trivial method: clip the finest measured margin at zero and round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from trueup.model.constraints import Constraints
from trueup.model.header import Measured
from trueup.reconciling.method import Solution
from trueup.reconciling.method import Method
from trueup.layouts.tree import tree_problem


@dataclass(frozen=True)
class Clip(Method):
    """Clip at zero, whatever the totals say."""

    name: ClassVar[str] = "clip"
    title: ClassVar[str] = "clip at zero"
    structures: ClassVar[frozenset[str]] = frozenset({"sum"})

    def refuses(self, constraints: Constraints) -> str | None:
        return "it ignores invariants and bounds" if constraints.invariants or constraints.bounds else None

    def prepare(self, constraints: Constraints, headers: Sequence[Measured]) -> Any:
        return tree_problem(constraints, headers)

    def apply(self, state: Any, values: NDArray, rng: np.random.Generator) -> Solution:
        cells = np.rint(state.finest(state.values(values))).astype(np.int64)
        cells[..., state.finest(state.bounds()[1]) == 0] = 0
        return Solution(np.maximum(cells, 0))
'''


NEW_LAW = '''"""A mixture of two discrete Laplace laws, one twice as wide as the other."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from trueup.noise.law import Cost
from trueup.noise.laws import IntegerLaw
from trueup.noise.laws.geometric import DiscreteLaplace
from trueup.digits import rational


@dataclass(frozen=True)
class MixedLaplace(IntegerLaw):
    """Either of two laws by a fair coin: no likelier to tell neighbouring databases apart than the narrower one."""

    name: ClassVar[str] = "mixed-laplace"
    title: ClassVar[str] = "Either of two discrete Laplace laws, pure epsilon"
    epsilon: Fraction

    def __post_init__(self):
        object.__setattr__(self, "epsilon", rational(self.epsilon, "epsilon"))

    @classmethod
    def for_budget(cls, amount, sensitivity):
        return cls(amount / sensitivity.l1)

    def cost(self, sensitivity):
        return Cost("epsilon", self.epsilon * sensitivity.l1)

    @property
    def parts(self):
        return DiscreteLaplace(self.epsilon), DiscreteLaplace(self.epsilon / 2)

    @property
    def variance(self):
        return sum(law.variance for law in self.parts) / 2

    def _logpmf(self, k):
        return np.logaddexp(*(law.logpmf(k) for law in self.parts)) - np.log(2)

    def _lower(self, k):
        return sum(law.cdf(k) for law in self.parts) / 2

    def _lower_quantile(self, probability):
        return self.parts[0].quantile(probability)

    def sample(self, size, words):
        coins = np.unpackbits(np.frombuffer(words(size // 8 + 1), np.uint8))[:size]
        return np.choose(coins, [law.sample(size, words) for law in self.parts])

    def sentence(self):
        return f"Each count receives noise of two discrete Laplace laws by a fair coin, epsilon = {self.epsilon}."
'''
NEW_PRIOR = '''"""Geometric counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from trueup.model.prior import BasePrior


@dataclass(frozen=True)
class Geometric(BasePrior):
    """Each count is k with a probability proportional to `ratio^k`."""

    ratio: float
    name: Literal["geometric"] = "geometric"

    def __post_init__(self):
        self._require(0 < self.ratio < 1, "ratio", "between 0 and 1")

    def logpmf(self, count):
        count = np.asarray(count)
        return np.where(count >= 0, np.log1p(-self.ratio) + count * np.log(self.ratio), -np.inf)

    def window(self):
        return 0, int(np.ceil(-42 / np.log(self.ratio)))
'''
ADDED = {
    "reconciling/__init__.py": ("reconciling/clip.py", TRIVIAL, "tree-topdown", '"clip": "clip.Clip"'),
    "noise/__init__.py": (
        "noise/laws/mixed.py",
        NEW_LAW,
        "exact",
        '"mixed-laplace": "laws.mixed.MixedLaplace"',
    ),
    "model/prior.py": ("model/geometric.py", NEW_PRIOR, "flat", '"geometric": "geometric.Geometric"'),
}
"""The method, the law and the prior that are added from outside the package: a file, and a line before that of another."""


PASSING = shutil.ignore_patterns("*.tmp.*", "*.pyc.*")


@pytest.fixture(scope="module")
def extended(tmp_path_factory) -> Path:
    """Return a copy of the project with one more method, law and prior: one file and one line each.

    Compiled kernels are copied, too: they stay good where what they were compiled from is the same. Files that another
    process is writing at the time have passing names.
    """
    copy = tmp_path_factory.mktemp("project")
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=PASSING)
    shutil.copy(ROOT / "pyproject.toml", copy)
    for listed, (file, text, other, line) in ADDED.items():
        (copy / "src/trueup" / file).write_text(text)
        path = copy / "src/trueup" / listed
        lines = path.read_text().splitlines(keepends=True)
        [at] = [k for k, each in enumerate(lines) if each.lstrip().startswith(f'"{other}": "')]
        path.write_text("".join([*lines[:at], f"        {line},\n", *lines[at:]]))
    return copy


def _in(copy: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.thorough
def test_a_new_method_appears_in_command_schema_and_docs(extended):
    listed = json.loads(_in(extended, "-m", "trueup", "methods", "--json"))["reconcile"]
    assert "clip" in [m["name"] for m in listed]
    schema = json.loads(_in(extended, "-m", "trueup", "schema"))
    assert "method:clip" in schema["$defs"]
    assert "| `clip` | sum | clip at zero |" in _in(extended, str(ROOT / "docs" / "methods.py"))


@pytest.mark.thorough
def test_a_new_method_is_held_against_the_conformance_suite(extended):
    said = _in(
        extended,
        "-m",
        "pytest",
        "-q",
        "tests/conformance",
        "-k",
        "clip and one",
        "-p",
        "no:cacheprovider",
        "-rA",
    )
    assert "clip-one sum" in said


RELEASE = """
import numpy as np, pandas, trueup
from trueup.inferring import inference_method
spec = trueup.parse_spec('''
format = 2
title = "Areas"
table = { name = "areas", kind = "counts", counts = "person", count = "n", keys = "public" }
privacy = { unit = "person", neighbours = "add-remove" }
level = [{ name = "all" }, { name = "area", column = "area" }]
query = [{ name = "total", noise = "NOISE", epsilon = { all = "1/2", area = "1/2" } }]
infer = { method = "METHOD", prior = PRIOR }
''')
noisy = trueup.measure(spec, pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]}))
release = trueup.reconcile(noisy)
assert all(release.checks.values()) and noisy.guarantee.amount == 1
law = noisy.headers[0].law
assert law.name == "NOISE" and abs(law.pmf(np.arange(-500, 501)).sum() - 1) < 1e-9
posterior = trueup.infer(noisy, draws=400)
means = posterior.table("area")["mean"]
print(posterior.prior, *(round(float(m)) for m in means))
"""


def _released(copy: Path, noise: str, method: str, prior: str) -> str:
    code = RELEASE.replace("NOISE", noise).replace("METHOD", method).replace("PRIOR", prior)
    return _in(copy, "-c", code)


@pytest.mark.thorough
def test_a_new_law_is_one_file_and_one_line(extended):
    listed = json.loads(_in(extended, "-m", "trueup", "methods", "--json"))["noise"]
    assert "mixed-laplace" in [law["name"] for law in listed]
    schema = json.loads(_in(extended, "-m", "trueup", "schema"))
    assert "mixed-laplace" in schema["$defs"]["Query"]["properties"]["noise"]["enum"]
    one, other = map(int, _released(extended, "mixed-laplace", "tree-exact", '"flat"').split()[-2:])
    # Noise of scale at most 4: off by 200 with probability below 1e-20.
    assert abs(one - 300) < 200
    assert abs(other - 400) < 200


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["tree-exact", pytest.param("lattice-moves", marks=pytest.mark.slow)])
def test_a_new_prior_is_one_file_and_one_line(extended, method):
    schema = json.loads(_in(extended, "-m", "trueup", "schema"))
    assert "Geometric" in schema["$defs"]
    # A count of 300 is e^-415 as probable as 0 under the prior, and costs the noise less than half of that.
    *_, one, other = _released(
        extended, "discrete-laplace", method, '{ name = "geometric", ratio = 0.25 }'
    ).split()
    assert max(int(one), int(other)) < 30


def test_the_docs_table_of_methods_is_current():
    from trueup import inferring, reconciling

    text = (ROOT / "docs" / "methods.md").read_text()
    for kind in (*reconciling.METHODS, *inferring.METHODS):
        assert f"| `{kind.name}` |" in text, "run: python docs/methods.py > docs/methods.md"


def test_lines_of_methods_state_the_structures_that_these_handle():
    from trueup import inferring

    stated = [(kind, said) for kind, said in zip(inferring.METHODS, inferring.METHODS.stated) if said]
    assert len(stated) > 1
    assert all(kind.structures == set(said) for kind, said in stated)


def test_a_file_above_300_lines_says_why():
    """Such a file is one piece of mathematics or one record, and its module docstring has a sentence `One file: ...`."""
    silent = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if text.count("\n") > 300 and "\nOne file: " not in (ast.get_docstring(_parsed(path)) or ""):
            silent.add(str(path.relative_to(SOURCE)))
    assert not silent, "split the file by concept, or say why in its docstring"


def test_every_public_name_has_one_definition():
    """One word, one thing: a reader who looks a name up finds one place."""
    homes: dict[str, list[str]] = {}
    for path in SOURCE.rglob("*.py"):
        for node in _parsed(path).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    twice = {name: at for name, at in homes.items() if len(at) > 1 and name not in ("main", "register")}
    assert not twice


QUOTED = re.compile(r"`((?:trueup|papers|benchmarks)(?:\.[A-Za-z_]\w*)+)[`(]")


def _is_found(name: str) -> bool:
    """Whether a module, or what it holds, has that dotted name."""
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def test_names_quoted_in_docstrings_and_pages_exist():
    """What moved is named where it is now."""
    files = [*(p for d in ("src", "tests", "papers", "benchmarks") for p in (ROOT / d).rglob("*.py"))]
    quoted = {
        (name, p.name) for p in [*files, *ROOT.glob("docs/**/*.md")] for name in QUOTED.findall(p.read_text())
    }
    assert len({name for name, _ in quoted}) > 50
    assert not sorted((name, file) for name, file in quoted if not _is_found(name))


def test_the_layers_in_contributing_are_those_of_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    held = [
        {part.strip().removeprefix("trueup.") for part in layer.split("|")}
        for layer in contracts[0]["layers"]
    ]
    [text] = re.findall(r"`(cli > [^`]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert [{part.strip() for part in layer.split("|")} for layer in text.split(">")] == held


def test_what_a_release_is_built_from_has_hashes_and_names_no_place():
    lines = (ROOT / "constraints-hashed.txt").read_text().splitlines()
    held = dict(line.split("==", 1) for line in lines if not line.startswith("#"))
    assert not [line for line in lines if re.search(r"://|--index|--find", line)]
    assert all(re.fullmatch(r"\S+ --hash=sha256:[0-9a-f]{64}", rest) for rest in held.values())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    assert {re.match(r"[\w-]+", each)[0].lower() for each in asked} <= set(held)
    known = dict(
        line.split("==", 1) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    for name, version in known.items():
        assert held.get(name.lower(), version).split()[0] == version, name


def test_the_conda_recipe_and_the_r_package_follow_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    run = recipe.split("  run:\n")[1].split("\n\n")[0]
    listed = {line.strip("- ").replace(" ", "").removeprefix("python-") for line in run.splitlines()}
    assert listed == {*project["dependencies"], f"python{project['requires-python']}"}
    version = re.search(r'__version__ = "(.+)"', (SOURCE / "version.py").read_text())
    assert version is not None
    assert f'version = "{version[1]}"' in recipe
    assert f"Version: {version[1]}\n" in (ROOT / "r" / "DESCRIPTION").read_text()
