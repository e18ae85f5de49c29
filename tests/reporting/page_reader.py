"""Read a page back with the standard parser: elements with their attributes, path and text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "link", "img", "hr"}


@dataclass(eq=False)
class Element:
    """An element with everything inside it."""

    tag: str
    attributes: dict[str, str | None]
    parents: tuple[Element, ...] = ()
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text inside, with single spaces."""
        return " ".join("".join(self.pieces).split())

    def get(self, name: str) -> str:
        """An attribute, or the empty text."""
        return self.attributes.get(name) or ""

    def inside(self, tag: str) -> bool:
        """Whether some ancestor has the tag."""
        return any(parent.tag == tag for parent in self.parents)


class Reader(HTMLParser):
    """Collect every element; refuse tags that do not close in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(page)
        self.close()
        assert not self._open, f"unclosed: {[e.tag for e in self._open]}"

    def all(self, *tags: str) -> list[Element]:
        """Elements of these tags, in order."""
        return [e for e in self.elements if e.tag in tags]

    def rows(self, table: Element) -> list[list[Element]]:
        """Cells of a table, row by row."""
        rows: dict[Element, list[Element]] = {}
        for cell in self.all("th", "td"):
            if table in cell.parents:
                rows.setdefault(cell.parents[-1], []).append(cell)
        return list(rows.values())

    def handle_starttag(self, tag, attrs):
        """Open an element."""
        element = Element(tag, dict(attrs), tuple(self._open))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attrs):
        """Note an element that closes itself."""
        self.elements.append(Element(tag, dict(attrs), tuple(self._open)))

    def handle_endtag(self, tag):
        """Close the element opened last."""
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data):
        """Add text to every open element."""
        for element in self._open:
            element.pieces.append(data)
