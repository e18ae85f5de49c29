"""What the page says: exact numbers, the right margins, honest limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.areas import write_areas
from tests.reporting.page_reader import Reader
from tests.reporting.records import CROSSED, PLAIN, RECORDS, RHO, measured, released
from trueup.model.cells import Margin
from trueup.model.records.expected_errors import CONFIDENCES
from trueup.noise import DiscreteGaussian, DiscreteLaplace
from trueup.reconciling.multinomial import MultinomialMode
from trueup.reconciling.tree_topdown import TreeEquality, TreeTopDown
from trueup.releasing.again import render_bundle
from trueup.releasing.pipeline import release
from trueup.reporting import report
from trueup.reporting.sections.counts import SHOWN_TABLE_ROWS
from trueup.reporting.sections.error import noise_margin


def table_of(reader: Reader, caption: str) -> list[list[str]]:
    """Rows of the table with that caption, as texts, the headings first."""
    table = next(e for e in reader.all("caption") if e.text.startswith(caption)).parents[-1]
    return [[cell.text for cell in row] for row in reader.rows(table)]


def text_of(record, spec, **options) -> str:
    return Reader(report(record, spec, **options)).all("body")[0].text


def test_charges_are_exact_and_sum_to_the_total():
    rows = table_of(Reader(report(*released(PLAIN))), "Privacy loss of each")
    assert [row[2] for row in rows[1:]] == [
        "epsilon = 1/10 (0.1)",
        "epsilon = 2/5 (0.4)",
        "epsilon = 1/2 (0.5)",
        "epsilon = 1",
    ]
    assert [row[3] for row in rows[1:]] == ["10 %", "40 %", "50 %", "100 %"]


def test_shares_of_mixed_currencies_are_shares_of_rho():
    mixed = PLAIN.replace(
        "} }]", '} }, { name = "again", noise = "discrete-gaussian", levels = ["state"], rho = "1/5" }]'
    )
    rows = table_of(Reader(report(*released(mixed))), "Privacy loss of each")
    in_rho = np.array([0.1**2 / 2, 0.4**2 / 2, 0.5**2 / 2, 0.2])
    shown = [float(row[3].removesuffix(" %")) for row in rows[1:-1]]
    np.testing.assert_allclose(shown, 100 * in_rho / in_rho.sum(), rtol=0.01)
    assert rows[-1][3] == "100 %"


@pytest.mark.parametrize("law", [DiscreteLaplace("1/2"), DiscreteLaplace("1/20"), DiscreteGaussian("7")])
def test_the_noise_margin_is_the_smallest_that_holds_90_percent(law):
    margin = noise_margin(law)
    inside = math.fsum(np.exp(law.logpmf(np.arange(-margin, margin + 1))))
    shorter = math.fsum(np.exp(law.logpmf(np.arange(-margin + 1, margin))))
    assert shorter < 0.9 <= inside


def test_released_and_noisy_counts_and_their_margins_are_shown():
    release, spec = released(PLAIN)
    rows = table_of(Reader(report(release, spec)), "Released counts: block group")
    margin = Margin("block_group")
    counts, noisy = release.sums(margin), release.measurements.values[2]
    signed = [row[1:] for row in rows[1:]]
    shown = [[float(cell.replace("−", "-").replace(",", "")) for cell in row] for row in signed]
    np.testing.assert_array_equal(np.array(shown).T, [counts, noisy, release.margin_of_error(margin)])


def test_errors_to_expect_are_shown_by_size_of_the_released_count():
    release, spec = released(PLAIN)
    rows = table_of(Reader(report(release, spec)), "Errors to expect, by size")
    classes = release.expected.labelled()
    assert [row[1] for row in rows[1:]] == [label for _, label in classes]
    shown = [[float(cell) for cell in row[-len(CONFIDENCES) :]] for row in rows[1:]]
    assert shown == [list(c.margins) for c, _ in classes]
    assert release.expected.note in text_of(release, spec)


def test_expected_errors_are_those_of_the_record_and_say_of_what():
    release, spec = released(PLAIN)
    rows = table_of(Reader(report(release, spec)), "Expected error of each")
    errors = [np.median(release.errors[m]) for m in release.published]
    np.testing.assert_allclose([float(row[4]) for row in rows[1:]], errors, atol=0.006)
    assert "of weighted least squares, before nonnegativity and rounding" in text_of(release, spec)


def test_without_a_closed_form_only_the_noise_is_stated():
    text = text_of(*released(PLAIN, MultinomialMode()))
    assert "no closed formula" in text
    assert "Noise of each table" in text
    assert "Standard error, median" not in text
    assert "Errors to expect, by size of the released count" in text


def test_changes_are_released_minus_noisy():
    release, spec = released(PLAIN)
    rows = table_of(Reader(report(release, spec)), "Released minus noisy")
    change = release.adjustments()["total @ block_group"]
    assert rows[3][0] == "total, block group"
    shown = [float(cell.replace("−", "-").removesuffix(" %")) for cell in rows[3][1:]]
    expected = [*np.quantile(change, [0, 0.05, 0.25, 0.5, 0.75, 0.95, 1]), np.sqrt(np.mean(change**2.0))]
    np.testing.assert_allclose(shown, [*expected, 100 * np.mean(change == 0)], atol=0.06)


def test_a_continuous_release_claims_neither_whole_counts_nor_their_sign():
    whole = text_of(*released(PLAIN))
    assert "and keep them whole and not negative, reconciliation" in whole
    assert "3 of 3" in whole
    real = text_of(*released(PLAIN, TreeTopDown(rounding="none")))
    assert "To make the counts add up, and keep them not negative, reconciliation" in real
    release, spec = released(PLAIN, TreeEquality())
    release = replace(release, counts=np.append(release.counts[1:], -0.5))
    page = text_of(release, spec)
    assert "To make the counts add up, reconciliation" in page
    for text in (real, page):
        assert "not claimed: the method's counts are continuous" in text
    assert "2 of 2" in real


def test_enumerated_counts_are_labelled_and_the_weaker_guarantee_is_named():
    text = text_of(*released(CROSSED))
    assert "published exactly as enumerated, not protected" in text
    assert "weaker than ordinary differential privacy" in text
    assert "each block group is at most 90" in text
    plain = text_of(*released(PLAIN))
    assert "Nothing. Every published count comes from noisy counts." in plain
    assert "weaker than ordinary" not in plain


def test_a_simulation_is_marked_above_everything():
    reader = Reader(report(*RECORDS["simulated release"]()))
    assert reader.all("header")[0].text.startswith("Simulation, not for publication")
    assert "Simulation, not for" not in text_of(*RECORDS["release"]())


def test_a_big_table_is_cut_and_says_so():
    record, spec = measured(PLAIN, blocks=SHOWN_TABLE_ROWS // 2 + 1)
    reader = Reader(report(record, spec))
    assert len(table_of(reader, "Noisy counts: block group")) == 1 + SHOWN_TABLE_ROWS
    assert "Shown are the first 4,000 of 4,002 rows" in reader.all("body")[0].text
    assert "Shown are the first" not in text_of(*measured(PLAIN))


def test_the_ledger_is_quoted_or_its_absence_said():
    record, spec = released(PLAIN)
    assert "No ledger was kept" in text_of(record, spec)
    quoted = Reader(report(record, spec, ledger={"entry": 17, "dataset": "areas"}))
    facts = dict(zip((e.text for e in quoted.all("dt")), (e.text for e in quoted.all("dd"))))
    assert (facts["Ledger: entry"], facts["Ledger: dataset"]) == ("17", "areas")
    assert "No ledger was kept" not in quoted.all("body")[0].text


def test_a_guarantee_in_rho_is_stated_in_rho():
    text = text_of(*released(RHO))
    assert "rho = 1" in text
    assert "Discrete Gaussian" in text


def test_every_sentence_of_the_guarantee_and_every_law_is_quoted():
    record, spec = released(CROSSED)
    text = text_of(record, spec)
    assert all(sentence in text for sentence in record.measurements.guarantee.sentences)
    assert all(h.law.sentence() in text for h in record.measurements.headers if not h.exact)
    assert record.measurements.digest in text


def test_a_bundle_gives_the_page_that_was_written_with_it(tmp_path):
    spec, table = write_areas(tmp_path)
    release(spec, table, tmp_path / "out")
    written = (tmp_path / "out/public/report.html").read_text(encoding="utf-8")
    assert render_bundle(tmp_path / "out") == written


def test_where_only_some_groups_are_measured_the_others_show_a_dash():
    record, spec = measured(PLAIN)
    last = record.headers[-1]
    some = replace(last, groups=np.array([1, 4]))
    record = replace(
        record, headers=(*record.headers[:-1], some), values=(*record.values[:-1], np.array([2**60 + 1, -3]))
    )
    rows = table_of(Reader(report(record, spec)), "Noisy counts: block group")
    assert [row[1] for row in rows[1:]] == ["–", "1,152,921,504,606,846,977", "–", "–", "−3", "–"]


def test_how_values_were_read_is_stated_where_rows_do_not_hold_them():
    read = CROSSED.replace(
        'values = ["', 'missing = "unknown", other = "others", fold = true, values = ["', 1
    )
    assert read != CROSSED
    said = text_of(*released(read))
    assert "what is missing is counted under “unknown”" in said
    assert "what is not listed is counted under “others”" in said
    assert "upper and lower case and repeated blanks make no difference" in said
    assert "were read" not in text_of(*released(CROSSED))
