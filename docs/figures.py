"""Draw the pictures of the house and of the choice of a method, and write the tables beside them: `python docs/figures.py`.

The floors follow the contract `layers` of pyproject.toml, the methods those that are registered, and folders their docstrings.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from trueup import inferring, reconciling

DOCS = Path(__file__).parent
ROOT = DOCS.parent
STYLE = (
    "text{fill:#1b1b1b;font-size:12px} .t{font-weight:600} .s{font-size:11px;fill:#444} .m{text-anchor:middle} "
    ".w{text-anchor:middle;font-size:13px;font-weight:600} "
    "rect{stroke-width:1.5;fill:#fff;stroke:#1f5f8b} .bg{stroke:none} .floor{fill:#f3f6f9;stroke:none} "
    ".verb{fill:#e3eef6} .public{fill:#eaf4ee;stroke:#1d6b3f} .inside{fill:#fdecea;stroke:#b3261e;stroke-dasharray:5 3} "
    ".e{fill:none;stroke:#1f5f8b;stroke-width:1.5} .ep{fill:none;stroke:#1d6b3f;stroke-width:1.5} "
    ".ei{fill:none;stroke:#b3261e;stroke-width:1.5;stroke-dasharray:5 3}"
)


def svg(width: int, height: int, title: str, about: str, drawn: Sequence[str]) -> str:
    """Return a picture with its own white ground, so that it reads on dark pages too."""
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 8 4 0 8z" fill="{colour}"/></marker>'
        for name, colour in (("e", "#1f5f8b"), ("ep", "#1d6b3f"), ("ei", "#b3261e"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="a b" '
        f'font-family="system-ui, sans-serif">\n<title id="a">{escape(title)}</title>\n<desc id="b">{escape(about)}</desc>\n'
        f"<style>{STYLE}</style><defs>{heads}</defs>\n"
        f'<rect class="bg" width="{width}" height="{height}"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def box(x: float, y: float, width: float, height: float, kind: str, *lines: str) -> str:
    """Return a box with lines of text in its middle, the first of them in bold."""
    first = y + height / 2 - 7.5 * len(lines) + 11.5
    said = "".join(
        f'<text class="m {"s" if at else "t"}" x="{x + width / 2:g}" y="{first + 15 * at:g}">{escape(line)}</text>'
        for at, line in enumerate(lines)
    )
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6"/>{said}'


def text(x: float, y: float, line: str, kind: str = "") -> str:
    """Return one line of text."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(line)}</text>'


def arrow(path: str, kind: str = "e") -> str:
    """Return an arrow along a path: blue inside the house, green for what is public, red and dashed for what is confidential."""
    return f'<path class="{kind}" marker-end="url(#{kind})" d="{path}"/>'


# The house


@dataclass(frozen=True)
class Floor:
    """Neighbouring layers of the contract that a reader may take for one floor, with their height in the picture."""

    names: str
    says: str
    layers: int = 1
    height: int = 36


FLOORS = (
    Floor("cli · studio · demo · schema", "commands, and a page to design on", 3),
    Floor("releasing · checking · assessing", "whole releases and checks of them", 2, 44),
    Floor("arrays (upper)", "draws and posteriors of vectors"),
    Floor("measuring · reconciling ·", "inferring · reporting: the verbs", 1, 58),
    Floor("planning · layouts ·", "ledger · synth: what verbs need"),
    Floor("io · run", "bundles, tables; who carries out tasks"),
    Floor("model", "spec, cells, places and all records", 1, 58),
    Floor("theory · files · privacy", "theorems; files of tables; losses", 2),
    Floor("arrays (lower)", "laws, losses and projections", 3),
    Floor("noise", "laws and their exact samplers"),
    Floor("kernel", "numbers in arrays, compiled"),
    Floor("registry · digits ·", "errors · version: what all use", 2),
)
"""From the top: imports only point down."""
ABOUT_HOUSE = (
    "Twelve floors, of which each imports from lower ones only. From the top: command line and studio; "
    "releasing, checking and assessing; functions on arrays; the verbs measure, reconcile, infer and "
    "report; planning, layouts, ledger and synth; io and run; model; theory, files and privacy; laws and "
    "projections on arrays; noise; kernel; names and errors. The path of data goes up and down between "
    "the verbs and the records of model. A spec and a public list of places make a Problem. measure takes"
    " it with the confidential table, entropy and a charge to the ledger, and returns Measurements; "
    "reconcile makes a Release of them, infer a Posterior, and report a page of any record. Measurements "
    "and Release go with their report to the folder public, a Posterior with its own to another public "
    "folder. The confidential table, the ledger, and an assessment of confidential counts stay inside."
)


def layers() -> list[str]:
    """Return the layers of the contract on floors, from the top."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    return next(c["layers"] for c in contracts if c["name"].startswith("Floors"))


def check_floors() -> None:
    """Raise ValueError if the floors of the picture are not the layers of the contract."""
    left = layers()
    for floor in FLOORS:
        held, left = left[: floor.layers], left[floor.layers :]
        folders = {part.split(".")[1] for layer in held for part in layer.split(" | ")}
        said = floor.names + (floor.says.split(":")[0] if ":" in floor.says else "")
        named = set(re.findall("[a-z]+", said)) - {"upper", "lower"}
        if folders != named:
            needed = "FLOORS in docs/figures.py as in pyproject.toml"
            raise ValueError(f"the floor '{floor.names}' holds {sorted(folders)}; needed: {needed}")
    if left:
        raise ValueError(f"layers of pyproject.toml that no floor of docs/figures.py holds: {left}")


RECORDS = {
    "Problem": (292, 80),
    "Measurements": (396, 108),
    "Release": (500, 80),
    "Posterior": (594, 88),
    "Assessment": (703, 98),
}
"""Middles and widths of the records, which stand on the floor of model."""
VERBS = {"measure": 337, "reconcile": 455, "infer": 545, "report": 640}
"""Middles of the verbs, each between the record that it takes and the one that it returns."""


def house() -> str:
    """Return the picture of the floors and the path of data."""
    check_floors()
    drawn, y, tops = [], 34, {}
    drawn.append(text(12, 22, "the floors of src/trueup: imports point down", "t"))
    for floor in FLOORS:
        tops[floor.names] = y
        middle = y + floor.height / 2
        drawn.append(f'<rect class="floor" x="8" y="{y}" width="744" height="{floor.height - 3}"/>')
        drawn += [text(14, middle - 4, floor.names, "t"), text(14, middle + 11, floor.says, "s")]
        y += floor.height
    names = ("releasing · checking · assessing", "measuring · reconciling ·", "planning · layouts ·", "model")
    drawn += path_of_data(*(tops[name] for name in names), y + 22)
    return svg(760, y + 86, "The floors of trueup and the path of data", ABOUT_HOUSE, drawn)


def path_of_data(whole: int, verbs: int, plans: int, model: int, disk: int) -> Iterator[str]:
    """Yield verbs, records, files and the arrows between them; heights are those of the floors and of the files."""
    record, verb = model + 8, verbs + 46
    yield from (arrow(f"M{x - 22} {record} V{verb + 1}") for x in VERBS.values())
    yield from (arrow(f"M{x + 22} {verb} V{record - 1}") for name, x in VERBS.items() if name != "report")
    yield from (arrow(f"M{RECORDS[name][0]} {record + 38} V{disk - 1}", "ep") for name in PUBLISHED)
    yield arrow(f"M646 {verb} V{disk - 1}", "ep")
    yield arrow(f"M292 {disk} V{record + 39}", "ep")
    yield arrow(f"M238 {disk} V{verbs + 27} H289", "ei")
    yield arrow(f"M302 {plans + 4} V{verb + 1}", "ei")
    yield arrow(f"M714 {whole + 38} V{record - 1}")
    yield arrow(f"M714 {record + 38} V{disk - 1}", "ei")
    for name, x in VERBS.items():
        lines, width = ([name, "draws noise"], 94) if name == "measure" else ([name], 84)
        yield box(x - width / 2, verbs + 8, width, 38, "verb", *lines)
    yield from (box(x - width / 2, record, width, 38, "record", name) for name, (x, width) in RECORDS.items())
    yield box(304, whole + 3, 284, 35, "verb", "release", "measure, reconcile, report and ledger in one")
    yield box(662, whole + 3, 90, 35, "verb", "assess", "repeats verbs")
    yield box(246, plans + 4, 62, 26, "inside", "ledger")
    yield box(128, disk, 116, 56, "inside", "confidential", "table of counts", "or of records")
    yield box(250, disk, 92, 56, "public", "spec, places", "a TOML file,", "a public list")
    yield box(350, disk, 196, 56, "public", "public/", "noisy counts, released", "counts, their report")
    yield box(554, disk, 100, 56, "public", "posterior", "tables, draws,", "its report")
    yield box(662, disk, 90, 56, "inside", "internal/", "log, timings,", "assessment")
    yield from legend(8, disk)


PUBLISHED = ("Measurements", "Release", "Posterior")
"""Records that may be published."""


def legend(x: float, y: float) -> Iterator[str]:
    """Yield what the two colours mean."""
    for at, (kind, line) in enumerate((("public", "public"), ("inside", "stays inside"))):
        yield f'<rect class="{kind}" x="{x}" y="{y + 8 + 26 * at}" width="16" height="14" rx="3"/>'
        yield text(x + 23, y + 19 + 26 * at, line, "s")


# The choice of a method


@dataclass(frozen=True)
class Case:
    """A kind of problem: the structures that the constraints of such a spec have, and the pages that explain its methods."""

    question: tuple[str, ...]
    structures: tuple[str, ...]
    reconcile_page: str
    infer_page: str


CASES = (
    Case(
        ("Persons and their households, in two", "tables that are linked?"),
        ("joined",),
        "tutorials/households.md",
        "posteriors.md#persons-and-households",
    ),
    Case(
        ("Several tables that share margins,", "without the table that holds them all?"),
        ("family",),
        "families.md",
        "families.md#posterior",
    ),
    Case(
        ("Linear rules beside sums, or an exact", "count of some units alone?"),
        ("general",),
        "reconcile-tables.md#any-linear-constraints",
        "posteriors.md#inequalities-at-every-place",
    ),
    Case(
        ("All tables nested: nation, states,", "counties; or a total and its parts?"),
        ("sum", "tree"),
        "reconcile-trees.md",
        "posteriors.md#trees-exactly",
    ),
    Case(
        ("Attributes that cross each other,", "with places or through recodes?"),
        ("histogram",),
        "histograms.md",
        "posteriors.md#histograms",
    ),
    Case(
        ("Attributes that cross each other,", "without places and recodes?"),
        ("margins",),
        "reconcile-tables.md",
        "posteriors.md#histograms",
    ),
)
"""In the order in which `Constraints.structure` asks."""
ABOUT_METHODS = (
    "Questions from the top; the first that is answered by yes decides. {cases} Where a method of "
    "inference says that it does not take the problem, the next in the box does. Counts that somebody "
    "else released by a multinomial method, without noisy counts, go to {released}; rounded, perturbed or"
    " hidden counts of somebody else are read with --perturbed and take the same questions."
)


def fitting(methods: Sequence[Any], structure: str) -> list[str]:
    """Return the names of the methods that take a structure from measurements, the default first."""
    return [
        kind.name for kind in methods if structure in kind.structures and not getattr(kind, "released", False)
    ]


def methods_of(case: Case) -> tuple[str, list[str]]:
    """Return a case's default method of reconciliation, and its methods of inference in the order in which they are tried."""
    found = {(fitting(reconciling.METHODS, s)[0], *fitting(inferring.METHODS, s)) for s in case.structures}
    if len(found) != 1:
        raise ValueError(
            f"the structures {case.structures} have not the same methods; give each a case of its own"
        )
    reconciled, *inferred = found.pop()
    return reconciled, inferred


def released_alone() -> list[str]:
    """Return the methods that infer from released counts alone."""
    return [kind.name for kind in inferring.METHODS if kind.released]


def choice() -> str:
    """Return the picture of the recommended path to a method."""
    rows = [(case, *methods_of(case)) for case in CASES]
    drawn = [text(151, 24, "your tables", "w"), text(422, 24, "reconcile", "w"), text(634, 24, "infer", "w")]
    for at, (case, reconciled, inferred) in enumerate(rows):
        y, last = 40 + 80 * at, at == len(rows) - 1
        drawn.append(question(y, *case.question))
        drawn += [arrow(f"M292 {y + 24} H337"), text(303, y + 19, "yes", "s")]
        drawn.append(box(338, y, 168, 48, "verb", reconciled))
        drawn += [
            arrow(f"M506 {y + 24} H525"),
            box(526, y, 226, 48, "public", inferred[0], *also(inferred[1:])),
        ]
        if not last:
            drawn += [arrow(f"M151 {y + 48} V{y + 79}"), text(159, y + 68, "no", "s")]
    y = 40 + 80 * len(rows)
    drawn.append(f'<path class="e" d="M10 {y - 8} H752"/>')
    drawn += [text(10, y + 16, "Counts of somebody else", "t"), *theirs(y + 28)]
    cases = " ".join(
        f"{' '.join(case.question)} Reconcile: {r}; infer: {', else '.join(i)}." for case, r, i in rows
    )
    about = ABOUT_METHODS.format(cases=cases, released=", ".join(released_alone()))
    return svg(760, y + 150, "Which method? One recommended path", about, drawn)


def question(y: float, *lines: str) -> str:
    """Return the box of a question."""
    return box(10, y, 282, 48, "record", *lines).replace('class="m s"', 'class="m t"')


def also(others: Sequence[str]) -> list[str]:
    """Return the line on the methods that are tried after the default."""
    return [f"else {', '.join(others)}"] if others else []


def theirs(y: float) -> Iterator[str]:
    """Yield the two ways to counts that somebody else published."""
    yield question(y, "Whole counts that add up, released by", "a multinomial method?")
    yield arrow(f"M292 {y + 24} H337")
    yield box(338, y, 168, 48, "verb", "nothing to do", "they add up")
    yield arrow(f"M506 {y + 24} H525")
    yield box(526, y, 226, 48, "public", *released_alone())
    y += 60
    yield box(10, y, 282, 48, "record", "Rounded, perturbed or hidden counts?")
    yield arrow(f"M292 {y + 24} H337")
    yield box(
        338,
        y,
        414,
        48,
        "record",
        "the same questions, with --perturbed SPEC",
        "noisy counts of known noise, too",
    )


# The tables of both pages


def table_of_folders() -> Iterator[str]:
    """Yield a row for each folder, and for those within it, with the first line of its docstring."""
    yield "| folder | what it holds |\n|---|---|"
    source = ROOT / "src" / "trueup"
    for path in sorted(each.parent for each in source.rglob("*/__init__.py")):
        line = (ast.get_docstring(ast.parse((path / "__init__.py").read_text())) or "").split("\n")[0]
        yield row(f"`{path.relative_to(source)}/`", line)


def row(*entries: str) -> str:
    """Return a row of a table."""
    return "| " + " | ".join(entry.replace("|", "\\|") for entry in entries) + " |"


def table_of_methods() -> Iterator[str]:
    """Yield a row for each kind of problem with links to the pages of its methods."""
    yield "| your tables | structure | reconcile | infer |\n|---|---|---|---|"
    for case in CASES:
        reconciled, inferred = methods_of(case)
        names = ", else ".join(f"`{name}`" for name in inferred[1:])
        infer = f"[`{inferred[0]}`]({case.infer_page})" + (f", else {names}" if names else "")
        structures = ", ".join(f"`{name}`" for name in case.structures)
        yield row(
            " ".join(case.question).rstrip("?"), structures, f"[`{reconciled}`]({case.reconcile_page})", infer
        )


def table_of_others() -> Iterator[str]:
    """Yield a row for each method that no question of the picture leads to."""
    shown = {name for case in CASES for name in (methods_of(case)[0], *methods_of(case)[1])}
    yield "| method | structures | what it solves |\n|---|---|---|"
    for kind in (*reconciling.METHODS, *inferring.METHODS):
        if kind.name not in {*shown, *released_alone()}:
            yield row(
                f"`{kind.name}`", ", ".join(f"`{name}`" for name in sorted(kind.structures)), kind.title
            )


TABLES = {
    "architecture.md": {"folders": table_of_folders},
    "which-method.md": {"methods": table_of_methods, "others": table_of_others},
}
"""Tables of the pages by the comment before each; `<!-- end -->` stands behind it."""


def made() -> dict[Path, str]:
    """Return the text of every file that this script writes: of pages, tables change and all else stays."""
    pages = {DOCS / name: (DOCS / name).read_text() for name in TABLES}
    for name, tables in TABLES.items():
        for mark, rows in tables.items():
            before, found, rest = pages[DOCS / name].partition(f"<!-- {mark} -->\n")
            _, end, after = rest.partition("<!-- end -->")
            if not (found and end):
                raise ValueError(f"{name} has no lines '<!-- {mark} -->' and '<!-- end -->' for its table")
            pages[DOCS / name] = "".join([before, found, *(f"{line}\n" for line in rows()), end, after])
    return {DOCS / "architecture.svg": house(), DOCS / "which-method.svg": choice()} | pages


if __name__ == "__main__":
    for path, content in made().items():
        path.write_text(content)
