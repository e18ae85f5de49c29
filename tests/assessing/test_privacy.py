"""An assessment on confidential counts stays internal: on disk, on the page, on the terminal, in its text."""

from __future__ import annotations

import json
import stat

import pytest

from tests.areas import SPEC, write_areas
from tests.assessing.worlds import area_spec, areas
from tests.command import run
from trueup.assessing import assess
from trueup.errors import BundleError, PrivacyError
from trueup.io.bundle.assessment import holds_assessment, read_assessment
from trueup.model.spec import parse_spec
from trueup.releasing import again as workflow
from trueup.reporting import report


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def folders(tmp_path):
    """A confidential and a public assessment."""
    spec, table = write_areas(tmp_path)
    options = {"replicates": 60, "thresholds": {"county": 10}, "methods": ["tree-topdown", "tree-equality"]}
    for name, public in (("secret", False), ("open", True)):
        workflow.assess_table(spec, table, tmp_path / name, public_truth=public, **options)
    return tmp_path / "secret", tmp_path / "open"


@pytest.mark.thorough
def test_a_confidential_one_is_internal_and_readable_by_nobody_else(folders):
    secret, open_ = folders
    assert [p.name for p in secret.iterdir()] == ["internal"]
    assert mode(secret / "internal") == 0o700
    assert [p.name for p in open_.iterdir()] == ["public"]
    assert sorted(p.name for p in (open_ / "public").iterdir()) == [
        "assessment.json",
        "counts",
        "report.html",
        "spec.toml",
        "summary.parquet",
    ]


def test_text_of_the_record_shows_no_figure():
    found = assess(area_spec(), areas([0, 0, 5, 987_654]), replicates=60, methods=["multinomial-mode"])
    assert "confidential" in repr(found)
    assert repr(found).count("\n") == 2
    assert str(found) == repr(found)
    numbers = {f"{v:.6g}" for v in found.summary["value"] if v not in (0, 1)}
    assert not any(number in repr(found) + found._repr_html_() + repr(found.flags) for number in numbers)


@pytest.mark.thorough
def test_reports_of_a_confidential_one_warn_and_are_refused_publication(folders, tmp_path):
    secret, open_ = folders
    assert "Confidential, not for publication" in workflow.render_bundle(secret)
    assert "Confidential" not in workflow.render_bundle(open_, publish=True)
    with pytest.raises(PrivacyError, match="from confidential counts"):
        workflow.render_bundle(secret, publish=True)
    refused = run("report", secret, "--publish", "--out", tmp_path / "page.html")
    assert refused.returncode == 2
    assert not (tmp_path / "page.html").exists()
    done = run("report", secret, "--out", tmp_path / "page.html")
    assert done.returncode == 0
    assert "confidential" in done.stdout
    assert mode(tmp_path / "page.html") == 0o600


@pytest.mark.thorough
def test_moving_the_files_to_public_does_not_make_them_so(folders):
    secret, _ = folders
    (secret / "internal").rename(secret / "public")
    with pytest.raises(PrivacyError):
        workflow.render_bundle(secret, publish=True)


@pytest.mark.thorough
def test_what_is_read_back_gives_the_same_page(folders):
    for folder in folders:
        record, spec = read_assessment(folder)
        page = next(folder.rglob("report.html")).read_text()
        assert report(record, spec) == page
        assert record.replicates == 60


@pytest.mark.thorough
def test_damage_and_strangers_are_refused(folders, tmp_path):
    secret, _ = folders
    with pytest.raises(BundleError, match="holds no assessment"):
        read_assessment(tmp_path)
    assert not holds_assessment(tmp_path)
    manifest = secret / "internal" / "assessment.json"
    content = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(content | {"format": 9}))
    with pytest.raises(BundleError, match="has format 9"):
        read_assessment(secret)
    manifest.write_text("{}")
    with pytest.raises(BundleError, match="damaged"):
        read_assessment(secret)
    for command in ("check", "infer"):
        assert run(command, secret).returncode == 2


@pytest.mark.thorough
def test_figures_of_single_counts_are_one_tidy_row_each(folders):
    import pandas

    _, open_ = folders
    table = pandas.read_parquet(open_ / "public" / "counts" / "county.parquet")
    assert list(table) == ["state", "county", "method", "budget", "statistic", "about", "value", "mc_error"]
    keys = ["state", "county", "method", "budget", "statistic", "about"]
    assert not table.duplicated(keys).any()
    assert set(table["method"]) == {"tree-topdown", "tree-equality"}
    record, _ = read_assessment(open_)
    mean = table.query("statistic == 'bias' and method == 'tree-topdown'")["value"].mean()
    assert mean == pytest.approx(record.figure("bias", "county", method="tree-topdown")[0])


# --- the command ----------------------------------------------------------------------------------


def assess_command(tmp_path, *options):
    spec, table = write_areas(tmp_path)
    return run("assess", spec, "--data", table, "--replicates", 60, *options)


def test_the_command_prints_no_figure_of_confidential_counts(tmp_path):
    done = assess_command(tmp_path, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Confidential" in done.stdout
    assert "±" not in done.stdout
    told = json.loads(assess_command(tmp_path, "--out", tmp_path / "json", "--json").stdout)
    assert set(told) == {
        "out",
        "public",
        "replicates",
        "interrupted",
        "methods",
        "budgets",
        "tables",
    }
    assert told["out"].endswith("internal")


@pytest.mark.slow
def test_the_command_prints_figures_of_public_counts(tmp_path):
    options = ("--public-truth", "--threshold", "county=10", "--budget-scale", 2)
    methods = ("--budget-scale", ".5", "--method", "tree-topdown:rounding=none")
    done = assess_command(tmp_path, *options, *methods, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "±" in done.stdout
    done = assess_command(tmp_path, *options, *methods, "--json", "--out", tmp_path / "methods")
    assert json.loads(done.stdout)["budgets"] == ["epsilon = 2", "epsilon = 1/2"]
    options = (*options, "--infer", "default", "--infer-replicates", 40, "--interval", "noise", "--json")
    told = json.loads(assess_command(tmp_path, *options, "--out", tmp_path / "json").stdout)
    assert told["budgets"] == ["epsilon = 2"]
    assert {row["statistic"] for row in told["levels"]} >= {"bias", "coverage", "wrong side"}


def test_the_command_takes_a_release_as_truth(tmp_path):
    spec, table = write_areas(tmp_path)
    assert run("release", spec, "--data", table, "--out", tmp_path / "released").returncode == 0
    done = run("assess", spec, "--data", tmp_path / "released", "--replicates", 60, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "public" / "report.html").is_file()


def test_the_command_leaves_nothing_where_it_refuses(tmp_path):
    for wrong in (
        ["--replicates", 5],
        ["--method", "tree"],
        ["--data", tmp_path],
        ["--threshold", "x=1"],
    ):
        assert assess_command(tmp_path, *wrong, "--out", tmp_path / "out").returncode == 2
        assert not (tmp_path / "out").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    assert assess_command(tmp_path, "--out", tmp_path / "full").returncode == 2


@pytest.mark.thorough
def test_spec_of_the_areas_is_what_is_kept(folders):
    assert read_assessment(folders[0])[1] == parse_spec(SPEC)
