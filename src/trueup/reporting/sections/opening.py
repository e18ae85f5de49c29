"""Opening of a release's report, in words that need no training, and who publishes it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from trueup.io.bundle.manifest import slug
from trueup.model.cells import Margin
from trueup.model.guarantee import Guarantee
from trueup.model.records.expected_errors import read_confidence
from trueup.model.records.release import Release
from trueup.model.spec import Spec
from trueup.model.statements import limited
from trueup.privacy import outward
from trueup.reporting.drawing import Facts, Links, Section
from trueup.reporting.drawing.words import listing, number, plain, table_name
from trueup.reporting.sections.protection import total_loss

MOST_TABLES = 3
"""Tables by attributes of which the opening says how far they are off, where no level of places is."""


def opening(release: Release, unit: str, level: float | str) -> tuple[str, ...]:
    """Return what was released, how it was protected, how far numbers may be off, and what not to conclude."""
    tables = listing([_by(release, m) for m in release.published])
    exact = [h for h in release.headers if h.exact]
    named = listing([table_name(h.margin) for h in exact]) if exact else ""
    kept = (
        f" {named[:1].upper()}{named[1:]}: published exactly as enumerated, without noise and not protected."
        if exact
        else ""
    )
    guarantee, what = release.guarantee, counted(release.spec, unit)
    return (
        f"This release publishes numbers of {what} {tables}.",
        *what_is_left_out(release, unit, level),
        f"Random noise was added to what was counted before anything was published. It bounds how much the data of one "
        f"{guarantee.unit} can change what is published. The bound is the privacy loss, {total_loss(guarantee)}"
        f"{_of_change(guarantee)}: a smaller one protects better.{kept}",
        *_off(release, unit, level),
        "A number of 0 does not mean that there is nobody, a small number is not exact, and two numbers that differ by "
        "less than their margins of error may in truth be equal or the other way round.",
    )


def _of_change(guarantee: Guarantee) -> str:
    """Return the loss of the smallest change that exact counts allow, if it is more than that of one step."""
    if guarantee.change is None or guarantee.change.steps < 2:
        return ""
    loss, steps = outward(guarantee.change.amount, 3), guarantee.change.steps
    said = f"{guarantee.currency} = {loss} for the smallest change that the exact counts allow"
    return f" for one step, and {said}, which is {steps} steps"


def _by(release: Release, margin: Margin) -> str:
    """Return by what a table counts, which says nothing of places where its level has one alone."""
    if not _is_whole(release, margin.level):
        return f"by {table_name(margin)}"
    return plain(f"by {listing(margin.attributes)}" if margin.attributes else "in all") + str(
        Margin("", (), margin.where)
    )


def _is_whole(release: Release, level: str) -> bool:
    return release.cells.tree.sizes[release.cells.tree.level(level)] == 1


def counted(spec: Spec | None, unit: str) -> str:
    """Return what is counted: `visits (at most 5 of each patient)`."""
    most = limited(spec) if spec else ""
    return f"{unit} ({most})" if most else unit


def counted_line(spec: Spec, unit: str) -> tuple[tuple[str, str], ...]:
    """Return a line of the headline if the records of a unit are limited."""
    return (("Counted", f"{counted(spec, unit)}; others are left out"),) if limited(spec) else ()


def what_is_left_out(release: Release, unit: str, level: float | str) -> tuple[str, ...]:
    """Return the note, if records of a unit are limited, that not all is counted, and how much is left out."""
    spec = release.spec
    if spec is None or not (most := limited(spec)):
        return ()
    counted_alone = release.left_out if spec.left_out is not None else None
    if counted_alone is None:
        how_many = (
            f"How many {unit} were left out is confidential, and no margin of error below includes them."
        )
    else:
        how_many = (
            f"About {number(max(counted_alone.value, 0))} {unit} were left out (± {number(counted_alone.margin_of_error(level))} "
            f"in {read_confidence(level)} of 100 cases), where of each {spec.privacy.unit} at most {counted_alone.most:,} of "
            "those left out are counted; no margin of error below includes them."
        )
    return (
        f"It counts {most}, and leaves out all others: a published number is no number of all {unit}, and may be far below "
        f"it. {how_many}",
    )


def _off(release: Release, unit: str, level: float | str) -> tuple[str, ...]:
    """Return how far the numbers of each level of places may be off, or of the first tables by attributes; no exact ones."""

    def uncertain(tables: Iterable[Margin]) -> dict[Margin, tuple[float, float]]:
        return {m: reach for m in tables if (reach := margins_of(release, m, level)) and reach[1] > 0}

    found = uncertain(m for m in release.published if not m.attributes)
    found = found or dict([*uncertain(release.published).items()][:MOST_TABLES])
    if not found:
        return ()
    percent, alone = read_confidence(level), _is_whole(release, release.cells.tree.levels[-1])
    said = [
        f"{_by(release, m) if m.attributes else 'in all' if m.level == 'all' or alone else plain(m.level)}: "
        f"{_between(*reach)} {unit}"
        for m, reach in found.items()
    ]
    of = f" of {what}" if (what := counted(release.spec, unit)) != unit else ""
    return (
        f"How far a published number may be from the true one{of}, in {percent} of 100 cases and by forecast: "
        f"{'; '.join(said)}.",
    )


def margins_of(release: Release, margin: Margin, level: float | str) -> tuple[float, float] | None:
    """Return the smallest and largest margin of error (counts) of a table, if any is known."""
    if release.parts > 1:
        classes = release.expected.tables.get(margin) if release.expected else None
        errors = np.array([c.margin(read_confidence(level)) for c in classes or ()], dtype=float)
    else:
        known = release.margin_of_error(margin, level)
        errors = np.zeros(0) if known is None else known
    return (float(errors.min()), float(errors.max())) if errors.size else None


def _between(low: float, high: float) -> str:
    low, high = np.ceil(low), np.ceil(high)
    return f"± {number(low)}" if low == high else f"± {number(low)} to ± {number(high)}"


def about(spec: Spec, release: Release) -> Section:
    """Return the section on who publishes it, and where the files are."""
    given = spec.about.model_dump(exclude_none=True)
    rows = tuple((name.capitalize(), text) for name, text in given.items())
    stored = release.parts > 1
    tables = (
        () if stored else tuple((f"counts/{slug(m)}.parquet", f"{table_name(m)}") for m in release.published)
    )
    files = (
        *tables,
        ("manifest.json", "how the release was made, with the digest of every file"),
        ("spec.toml", "the specification"),
    )
    return Section(
        "about", "About this release, and its files", (*([Facts(rows)] if rows else []), Links(files))
    )


_WORDS = (
    (
        "Differential privacy",
        "A property of the way in which counts are published: whatever anybody concludes from them would be almost "
        "as likely had one unit's data been different. How much 'almost' allows is the privacy loss.",
    ),
    (
        "Privacy loss",
        "The bound on how much one unit's data can change the probability of any published result, stated as "
        "epsilon or rho. Losses of several releases add up.",
    ),
    ("Noisy count", "The true count plus a random number from a known law. It may be negative."),
    (
        "Noise margin",
        "The distance from the true count within which the noisy count lies with the stated probability.",
    ),
    (
        "Reconciliation",
        "Turning noisy counts into whole counts that are not negative and add up, without looking at the true data.",
    ),
    (
        "Weighted least squares",
        "The combination of all noisy counts that is closest to them, where each counts the more the less noise it has.",
    ),
    ("Standard error", "The typical size of the error: the root of its mean square."),
    (
        "Post-processing",
        "Any computation on noisy counts. It cannot weaken the protection.",
    ),
    ("Digest", "A fingerprint of a file: two files with the same digest are the same."),
)
_INVARIANT = (
    "Exactly as enumerated",
    "Published without noise (an invariant). Such counts are not protected.",
)


def glossary(guarantee: Guarantee) -> Section:
    """Explain the words of the page."""
    words = (*_WORDS, _INVARIANT) if guarantee.kind == "invariant" else _WORDS
    return Section("words", "Words used on this page", (Facts(words),))
