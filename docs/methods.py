"""Write the page of noise distributions and methods from their registries: `python docs/methods.py > docs/methods.md`."""

from __future__ import annotations

from collections.abc import Iterator

from trueup.cli.standalone import NOUNS, methods_and_laws


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    found = methods_and_laws()
    yield "# Noise distributions and methods\n\nMade by `python docs/methods.py`. [Which method?](which-method.md) shows which one your tables get."
    others = "Distributions of what others publish\n\nFor `infer --perturbed` and `assess`; none has a guarantee."
    for heading, kind in (("Noise distributions", "noise"), (others, "perturbed")):
        yield f"\n## {heading}\n\n| distribution | what it is |\n|---|---|"
        yield from (f"| `{law['name']}` | {law['title']} |" for law in found[kind])
    for verb, noun in NOUNS.items():
        yield f"\n## {noun} methods\n\nThe first that fits is the default.\n"
        yield "| method | structures | what it solves |\n|---|---|---|"
        for kind in found[verb]:
            yield f"| `{kind['name']}` | {', '.join(kind['structures'])} | {kind['title']} |"


if __name__ == "__main__":
    print("\n".join(lines()))
