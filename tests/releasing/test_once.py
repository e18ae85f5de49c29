"""One release reads, builds, prepares and opens each thing once."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import trueup
from trueup.demo import AREAS
from trueup.model.problem import Problem
from trueup.reconciling.tree_topdown import TreeTopDown
from trueup.releasing import pipeline
from trueup.releasing.explain import explain

ONCE = {
    "parse_spec": "model/spec.py",
    "read_tree": "model/geography.py",
    "public_cells": "model/problem.py",
    "read_confidential": "measuring/__init__.py",
    "draw": "measuring/__init__.py",
    "write_measurements": "io/bundle/write.py",
    "write_release": "io/bundle/write.py",
    "write_manifest": "io/bundle/manifest.py",
    "report": "reporting/__init__.py",
}
"""What is done once in a release, by function and file."""


def counted(call) -> Counter:
    """How often each function of the package is called, by name and file; and the sizes of what is built and prepared."""
    calls: Counter = Counter()
    package = Path(pipeline.__file__).parents[1]

    def note(frame, event, argument):
        if event != "call" or not frame.f_code.co_filename.startswith(str(package)):
            return
        name = frame.f_code.co_name
        calls[name, Path(frame.f_code.co_filename).relative_to(package).as_posix()] += 1
        if name in ("build_constraints", "prepare"):
            held = frame.f_locals.get("cells") or frame.f_locals["constraints"].cells
            calls[name, held.n] += 1

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls


@pytest.fixture
def areas(tmp_path):
    """A spec of eleven places with its table, on disk."""
    AREAS.write(tmp_path / "areas.toml")
    rows = "".join(f"{name},{10 + i}\n" for i, name in enumerate("abcdefghijk"))
    (tmp_path / "areas.csv").write_text("area,n\n" + rows)
    return tmp_path


def test_a_release_does_everything_once(areas):
    calls = counted(lambda: pipeline.release(areas / "areas.toml", areas / "areas.csv", areas / "out"))
    assert {(name, file): calls[name, file] for name, file in ONCE.items()} == dict.fromkeys(ONCE.items(), 1)
    assert calls["_open_file", "files/source.py"] == 2, (
        "the table is read as list of places, and for its counts"
    )


def test_constraints_are_built_and_the_method_prepared_once_for_the_whole_problem(areas):
    calls = counted(lambda: pipeline.release(areas / "areas.toml", areas / "areas.csv", areas / "out"))
    assert calls["build_constraints", 11] == 1
    assert calls["prepare", 11] == 1


def test_an_explanation_prepares_the_method_once(areas):
    calls = counted(lambda: explain(areas / "areas.toml", areas / "areas.csv"))
    assert calls["expected_errors", "reconciling/expected_errors.py"] == 1
    assert calls["build_constraints", 11] == 1
    assert calls["prepare", 11] == 1


@pytest.mark.thorough
def test_measuring_reconciling_and_inferring_build_the_constraints_once(areas):
    def all_verbs():
        noisy = trueup.measure(areas / "areas.toml", areas / "areas.csv")
        trueup.reconcile(noisy)
        trueup.infer(noisy, draws=20)

    assert counted(all_verbs)["build_constraints", 11] == 1


def test_an_assessment_builds_the_constraints_once(areas):
    problem = Problem.of(areas / "areas.toml", data=areas / "areas.csv")
    calls = counted(lambda: trueup.assess(problem, areas / "areas.csv", replicates=40, budgets=(1, 2)))
    assert calls["build_constraints", 11] == 1
    assert calls["prepare", 11] == 2, "once for each budget"


def test_the_simulated_errors_of_all_places_take_the_problem_as_it_is(areas):
    calls = counted(lambda: pipeline.release(areas / "areas.toml", areas / "areas.csv", areas / "out"))
    assert calls["expected_errors", "reconciling/expected_errors.py"] == 1
    assert calls["build_constraints", 11] == 1


def test_a_problem_that_is_given_is_not_settled_again(areas):
    problem = Problem.of(areas / "areas.toml", data=areas / "areas.csv")
    assert problem.guarantee
    calls = counted(lambda: pipeline.release(problem, areas / "areas.csv", areas / "out"))
    assert not calls["parse_spec", "model/spec.py"]
    assert not calls["read_tree", "model/geography.py"]
    assert calls["_open_file", "files/source.py"] == 1


def test_the_method_is_ready_before_the_data_are_read(areas, monkeypatch):
    """The wait for a compiler is announced, and comes before any confidential count."""
    heard, order = [], []
    monkeypatch.setattr(TreeTopDown, "apply", noting(TreeTopDown.apply, order, "apply"))
    monkeypatch.setattr("trueup.releasing.engine.read_confidential", noting(_read(), order, "read"))
    pipeline.release(
        areas / "areas.toml", areas / "areas.csv", areas / "out", watch=lambda what, *_: heard.append(what)
    )
    assert order[:2] == ["apply", "read"]
    ready = next(i for i, stage in enumerate(heard) if "method ready" in stage)
    assert ready < heard.index("reading the confidential counts")


@pytest.mark.thorough
def test_no_kernel_is_looked_for_once_noise_is_drawn(areas):
    """Kernels that are not kept are compiled when they are first looked for, which takes seconds; in a fresh process."""
    given = f"{str(areas / 'areas.toml')!r}, {str(areas / 'areas.csv')!r}, {str(areas / 'out')!r}"
    code = f"""
from trueup.kernel import compiled
from trueup.releasing import pipeline
heard, asked, load = ["nothing"], [], compiled.KeptCode.load_overload
def noted(self, *given):
    asked.append((heard[-1], self._py_func.__name__))
    return load(self, *given)
compiled.KeptCode.load_overload = noted
pipeline.release({given}, watch=lambda what, *_: heard.append(what))
print(*(f"{{stage}}: {{name}}" for stage, name in asked), sep="\\n")
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    asked = done.stdout.splitlines()
    assert any("posterior_variances" in line for line in asked)
    assert {line.partition(":")[0] for line in asked} <= {"making the noise ready", "making the method ready"}


def noting(function, order: list, what: str):
    """The function, which notes that it is called."""

    def called(*given, **more):
        order.append(what)
        return function(*given, **more)

    return called


def _read():
    from trueup.measuring import read_confidential

    return read_confidential


def test_a_spec_made_in_python_and_dataframes_are_released(tmp_path):
    import pandas

    from trueup import load_spec

    areas = pandas.DataFrame({"area": ["a", "b"], "n": [300, 400]})
    pipeline.release(AREAS, areas, tmp_path / "out", geography=areas[["area"]])
    assert load_spec(tmp_path / "out" / "public" / "spec.toml") == AREAS
