"""Questions to draws: each answer is held against sums written out by hand, each wrong name is refused with the nearest."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from trueup.errors import SpecError
from trueup.inferring.questions import ask
from trueup.model.cells import Attribute, Cells, Recode
from trueup.model.records.drawn import Drawn
from trueup.model.records.posterior import Posterior
from trueup.model.tree import Tree

AGES = ("0-17", "18-64", "65+")


@pytest.fixture
def posterior(rng) -> Posterior:
    """Two counties of two and three towns, by sex and age; 50 draws."""
    keys = [{}, {"county": list("nnsss")}, {"town": ["1", "2", "1", "3", "4"]}]
    tree = Tree.from_columns(["all", "county", "town"], keys)
    adult = Recode.of("adult", {"no": ["0-17"], "yes": ["18-64", "65+"]}, AGES)
    cells = Cells(tree, (Attribute("sex", ("f", "m")), Attribute("age", AGES, recodes=(adult,))))
    draws = rng.integers(0, 30, (1, 50, cells.n))
    return Posterior(cells, Drawn(draws, independent=True), {"method": "demo"}, "ab" * 32)


def table(posterior: Posterior):
    """Draws by town, sex and age."""
    return posterior.draws.reshape(50, 5, 2, 3)


QUESTIONS = {
    "'county=n'": lambda t: t[:, :2].sum((1, 2, 3)),
    "n - s": lambda t: t[:, :2].sum((1, 2, 3)) - t[:, 2:].sum((1, 2, 3)),
    "'s/3, sex=f, age=65+'": lambda t: t[:, 3, 0, 2],
    "'town=4, adult=yes' / 'town=4'": lambda t: t[:, 4, :, 1:].sum((1, 2)) / t[:, 4].sum((1, 2)),
    "2 * ('n/1' + '3') - 5": lambda t: 2 * (t[:, 0] + t[:, 3]).sum((1, 2)) - 5,
    "'sex=m'": lambda t: t[:, :, 1].sum((1, 2)),
    "rank('town=s/4')": lambda t: 1 + (t.sum((2, 3)) > t.sum((2, 3))[:, [4]]).sum(1),
    "rank('n, sex=f')": lambda t: 1 + (t[:, 2:, 0].sum((1, 2)) > t[:, :2, 0].sum((1, 2))),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_answer_is_the_sum_written_out(posterior, question):
    answer = ask(posterior, question)
    wanted = QUESTIONS[question](table(posterior))
    np.testing.assert_allclose(answer.draws[0], wanted)
    np.testing.assert_allclose(answer.figures()["mean"], wanted.mean())


@pytest.mark.parametrize("factors", [2, 12, 40])
def test_products_do_not_wrap_around(posterior, factors):
    towns = table(posterior).sum((1, 2, 3)).astype(float)
    found = ask(posterior, "*".join(["all"] * factors)).draws[0]
    np.testing.assert_allclose(found, towns**factors)


def test_what_is_undefined_is_told_in_one_line():
    cells = Cells(Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}]))
    draws = np.array([[[1, 0], [2, 0], [3, 1], [4, 2]]])
    posterior = Posterior(cells, Drawn(draws, independent=True), {"method": "demo"}, "ab" * 32)
    assert "given that no denominator is 0 (probability 0.500)" in repr(ask(posterior, "a / b"))
    assert "given that no denominator is 0 (probability 0.500)" in repr(ask(posterior, "a / b > 1"))
    assert "not defined, as a denominator is 0 in every draw" in repr(ask(posterior, "a / (b - b)"))
    assert "given" not in repr(ask(posterior, "b / a"))


def test_a_level_asks_about_each_of_its_places(posterior):
    towns = table(posterior).sum((2, 3))
    counties = np.stack([towns[:, :2].sum(1), towns[:, 2:].sum(1)], axis=1)
    np.testing.assert_allclose(ask(posterior, "town / county").draws[0], towns / counties[:, [0, 0, 1, 1, 1]])
    found = ask(posterior, "county / all").table()
    assert found["county"].tolist() == ["n", "s"]
    ranks = ask(posterior, "rank('town, sex=f' / town)").draws[0]
    assert (ranks.min(1) == 1).all()
    assert (ranks == 1 + (ranks[:, None] < ranks[:, :, None]).sum(2)).all()  # each counts those before it


def test_a_comparison_is_the_share_of_draws_where_it_holds(posterior):
    t = table(posterior).sum((2, 3))
    assert ask(posterior, "'n/1' > 'n/2'").probability == pytest.approx((t[:, 0] > t[:, 1]).mean())
    assert ask(posterior, "'n/1' <= 'n/2'").probability == pytest.approx((t[:, 0] <= t[:, 1]).mean())
    by_town = ask(posterior, "town > 80").figures()["probability"]
    np.testing.assert_allclose(by_town, (t > 80).mean(0))


def test_areas_of_ones_own_are_named_as_a_level_is(posterior):
    areas = pd.DataFrame({"district": ["x", "x", "y"], "county": ["n", "s", "s"], "town": ["1", "4", "4"]})
    t = table(posterior)
    found = ask(posterior, "'district, sex=f' / district", areas=areas, column="district")
    x = t[:, [0, 4], 0].sum((1, 2)) / t[:, [0, 4]].sum((1, 2, 3))
    np.testing.assert_allclose(found.draws[0, :, 0], x)
    one = ask(posterior, "'district=y' - 's/4'", areas=areas, column="district")
    assert not one.draws.any()
    bare = ask(posterior, "'y' - 's/4'", areas=areas, column="district")
    assert not bare.draws.any()


def test_a_count_of_the_whole_over_those_of_each_place_is_asked_for_in_other_words(posterior):
    """It is no share of each place: whoever means it multiplies by 1."""
    t = table(posterior)
    found = ask(posterior, "1 * 'sex=f' / county").draws[0]
    np.testing.assert_allclose(found[:, 0], t[:, :, 0].sum((1, 2)) / t[:, :2].sum((1, 2, 3)))
    np.testing.assert_allclose(
        ask(posterior, "all / county").draws[0][:, 1], t.sum((1, 2, 3)) / t[:, 2:].sum((1, 2, 3))
    )


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("'contry=n'", "did you mean 'county'"),
        ("'n/1, age=0-71'", "did you mean '0-17'"),
        ("'n, education=low'", "not by 'education'.*release that measured them"),
        ("'tract=7'", "not by 'tract'"),
        ("'n/11'", "did you mean 'n/1'"),
        ("'1'", "the name of 2 places of level 'town'"),  # two towns have this key
        ("'county=1'", "level 'county' of these draws has no place '1'"),
        ("'sex=f' / county", "did you mean \"'county, sex=f' / 'county'\""),
        ("'n/1' / county", "did you mean \"'town' / 'county'\""),
        ("3 + 4", "names no place"),
        ("n < s < n", "not one comparison"),
        ("n ** s", "cannot be computed"),
        ("rank(n - s)", "not of each place"),
        ("rank(3)", "not of each place"),
        ("'n, sex=f, sex=m'", "two values"),
        ("n, sex=f", "position"),
        ("__import__('os').system('true')", "cannot be computed"),
        ("-" * 20_000 + "n", "at most 10,000"),
        (None, "at most 10,000"),
        (3, "at most 10,000"),
        ("n * 1e-320", "nearer to 0"),
        ("n * 1e400", "beyond 2"),
        ("*".join(["(n + 1)"] * 250), "too large"),
        ("(" * 5_000 + "n" + ")" * 5_000, "question"),
    ],
)
def test_what_the_draws_cannot_answer_is_refused(posterior, question, said):
    with pytest.raises(SpecError, match=said):
        ask(posterior, question)


def test_values_that_overlap_are_not_summed(rng):
    tree = Tree.from_columns(["all", "area"], [{}, {"area": ["a", "b"]}])
    cells = Cells(tree, (Attribute("unit", ("persons", "families"), partition=False),))
    posterior = Posterior(cells, Drawn(rng.integers(0, 9, (1, 9, 4)), True), {"method": "demo"}, "")
    with pytest.raises(SpecError, match="overlap"):
        ask(posterior, "a")
    assert ask(posterior, "'a, unit=families'").draws.tolist() == posterior.draws[:, :, 1].tolist()


def test_a_record_knows_places_by_the_same_names(posterior):
    same = posterior.quantity("'county=n, sex=f' - '3'").draws
    np.testing.assert_array_equal(same, ask(posterior, "'county=n, sex=f' - '3'").draws)
    with pytest.raises(SpecError, match="every place"):
        posterior.quantity("town")


def test_draws_as_an_array_are_told_by_place_and_attribute(posterior):
    held = posterior.to_xarray()
    t = table(posterior)
    north = held["count"].where(held.county == "n", drop=True)
    assert north.sum().item() == t[:, :2].sum()
    by_age = held["count"].groupby("age").sum()
    assert by_age.sel(age="65+").values.ravel().tolist() == t[..., 2].sum((1, 2)).tolist()
    assert held["count"].dims == ("chain", "draw", "cell")


def test_a_name_of_two_places_is_refused_in_questions_and_the_coarser_label_in_quantities():
    keys = [{}, {"region": ["x", "x"]}, {"town": ["x", "y"]}]
    cells = Cells(Tree.from_columns(["all", "region", "town"], keys, whole_code=[False, True, True]), ())
    posterior = Posterior(
        cells, Drawn(np.array([[[3, 4], [5, 6]]]), independent=True), {"method": "demo"}, "ab" * 32
    )
    assert posterior.quantity("x").draws.ravel().tolist() == [7, 11]
    assert posterior.quantity("'town=x'").draws.ravel().tolist() == [3, 5]
    with pytest.raises(SpecError, match=r"'x' is the name of places of several levels.*'region=x', 'town=x'"):
        ask(posterior, "x")
    assert ask(posterior, "'region=x'").draws.ravel().tolist() == [7, 11]
    assert ask(posterior, "'town=x'").draws.ravel().tolist() == [3, 5]


def test_a_name_of_places_that_are_the_same_lowest_places_is_no_question_of_which():
    tree = Tree.from_columns(["all", "town"], [{}, {"town": ["all", "b"]}])
    cells = Cells(tree, (Attribute("sex", ("f", "m")),))
    held = Drawn(np.array([[[3, 4, 5, 6]]]), independent=True)
    posterior = Posterior(cells, held, {"method": "demo"}, "ab" * 32)
    with pytest.raises(SpecError, match="'all=all', 'town=all'"):
        ask(posterior, "'all, sex=f'")
    assert ask(posterior, "'sex=f'").draws.ravel().tolist() == [8]
    alone = Tree.from_columns(["all", "town"], [{}, {"town": ["all"]}])
    held = Drawn(np.array([[[3], [4]]]), independent=True)
    one = Posterior(Cells(alone), held, {"method": "demo"}, "ab" * 32)
    assert ask(one, "all").draws.ravel().tolist() == [3, 4]
