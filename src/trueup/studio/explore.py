"""Views of a bundle, made from its public files: tables with intervals, sums over places, and files."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shutil import make_archive
from typing import Any

import numpy as np

import trueup
from trueup.errors import TrueupError
from trueup.model.cells import Margin
from trueup.releasing.again import render_bundle
from trueup.reporting.drawing import Map
from trueup.reporting.drawing.maps import matched, read_shapes
from trueup.reporting.drawing.words import plural
from trueup.reporting.pages.release import release_map
from trueup.studio.rendering import ExploredPage, internal

ROWS = 50
"""Rows of a page."""


@dataclass
class Explorer:
    """A bundle to explore, with the outlines of its places."""

    folder: Path
    shapes: str = ""
    _posterior: trueup.Posterior | None = None
    _fault: str = ""
    _thread: threading.Thread | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _maps: dict[str, Map] = field(default_factory=dict)

    @cached_property
    def release(self) -> trueup.Release:
        """Return the release in the bundle, read when it is first needed."""
        return trueup.read_release(self.folder)

    @property
    def tables(self) -> tuple[str, ...]:
        """Return the names of the published tables."""
        return tuple(map(str, self.release.published))

    @cached_property
    def _features(self) -> list[Any]:
        return read_shapes(self.shapes)

    @property
    def first(self) -> str:
        """Return the name of the table to show first: the one on the map, or the finest."""
        if self.shapes:
            with suppress(TrueupError):
                level, _, _ = matched(self.release.cells, self._features)
                return next(str(m) for m in self.release.published if m == Margin(level))
        return self.tables[-1]

    def map(self, confidence: str) -> Map | None:
        """Return a map of places shaded by the certainty of counts; None without outlines.

        Raises
        ------
        TrueupError
            If the outlines are of no level that was released.
        """
        if not self.shapes:
            return None
        if confidence not in self._maps:
            spec = self.release.measurements.spec
            unit = plural(spec.table.counts) if spec else "counts"
            self._maps[confidence] = release_map(self.release, unit, confidence, self._features)
        return self._maps[confidence]

    def rows(self, table: str, level: str, search: str = "", page: int = 0) -> dict[str, Any]:
        """Return the rows of one page of a table: place, values, released count, margin of error and interval.

        Raises
        ------
        TrueupError
            If the table or the level of confidence is unknown.
        """
        release = self.release
        if table not in self.tables:
            raise TrueupError(f"there is no table '{table[:60]}'", needed=f"one of {', '.join(self.tables)}")
        margin = next(m for m in release.published if str(m) == table)
        labels = [self._label(margin, place) for place in range(self._places(margin))]
        wanted = [i for i, label in enumerate(labels) if search.casefold() in label.casefold()]
        groups = release.cells.size(margin) // len(labels)
        values = self._values(margin)
        figures = release.figures(margin, level)
        counts, errors = figures["released"], figures["margin of error"]
        chosen = [place * groups + g for place in wanted for g in range(groups)]
        shown = chosen[page * ROWS : (page + 1) * ROWS]
        return {
            "rows": [
                {"place": labels[i // groups], "key": release.cells.tree.label(margin.level, i // groups),
                 "values": values[i % groups],
                 **_interval(counts[i], errors[i])}
                for i in shown
            ],
            "columns": list(margin.attributes),
            "found": len(chosen),
            "pages": max(1, -(-len(chosen) // ROWS)),
            "level": margin.level,
        }  # fmt: skip

    def page(self, view: ExploredPage) -> dict[str, Any]:
        """Return the content of the page for a requested view.

        Raises
        ------
        TrueupError
            If the table, the level of confidence or the outlines are at fault.
        """
        table = view.table or self.first
        spec = self.release.measurements.spec
        found = self.rows(table, view.confidence, view.search, view.number)
        return {
            "table": table,
            "found": found,
            "tables": self.tables,
            "of": view.of or found["level"],
            "title": spec.title if spec else "",
            "sentences": self.release.guarantee.sentences,
            "map": self.map(view.confidence),
        }

    def _places(self, margin: Margin) -> int:
        return self.release.cells.tree.sizes[self.release.cells.tree.level(margin.level)]

    def _label(self, margin: Margin, place: int) -> str:
        tree = self.release.cells.tree
        names = tree.names[tree.level(margin.level)] if tree.names else None
        key = tree.label(margin.level, place)
        return key if names is None else f"{names[place]} ({key})"

    def _values(self, margin: Margin) -> list[list[str]]:
        recodes = [r for r in self.release.cells.recodes(margin.attributes) if r.name]
        shape = [r.size for r in recodes]
        return [[r.values[i] for r, i in zip(recodes, at)] for at in np.ndindex(*shape)]

    def area(self, level: str, places: Sequence[str]) -> dict[str, Any]:
        """Return the released total of some places, with an interval if there is a posterior.

        Raises
        ------
        TrueupError
            If a place is unknown or none is given.
        """
        tree = self.release.cells.tree
        if level not in tree.levels:
            raise TrueupError(f"there is no level '{level[:60]}'", needed=f"one of {', '.join(tree.levels)}")
        keys = {key: i for i, key in enumerate(tree.labels(level))}
        if lost := [place for place in places if place not in keys]:
            raise TrueupError(
                f"level '{level}' has no place '{lost[0][:60]}'", needed="a place that this release lists"
            )
        if not places:
            raise TrueupError("no place is chosen", needed="at least one place")
        chosen = list(dict.fromkeys(places))
        total = int(self.release.sums(Margin(level))[[keys[place] for place in chosen]].sum())
        found = {"places": chosen, "released": total, "fault": self._fault}
        if self._posterior is not None:
            quantity = self._posterior.area({level: chosen})
            low, high, inside = quantity.interval("90%")
            found |= {
                "low": low,
                "high": high,
                "inside": inside,
                "mean": quantity.mean,
                "kind": self._posterior.drawn.kind,
            }
        return found

    def infer(self) -> None:
        """Start a thread that computes the posterior, unless it was started before."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._infer, daemon=True)
                self._thread.start()

    def _infer(self) -> None:
        try:
            self._posterior = trueup.infer(trueup.read_measurements(self.folder))
        except TrueupError as error:
            self._fault = str(error)
        except Exception as error:
            self._fault = internal(error)

    def download(self, name: str) -> tuple[bytes, str]:
        """Return the content and the media type of a public file."""
        if name not in FILES:
            raise TrueupError("there is no such file to download", needed=f"one of {', '.join(FILES)}")
        if name == "report.html" and self.shapes and self.release.parts == 1:
            return render_bundle(self.folder, shapes=self.shapes).encode(), FILES[name]
        if name in ("report.html", "spec.toml"):
            return (self.folder / "public" / name).read_bytes(), FILES[name]
        with tempfile.TemporaryDirectory() as scratch:
            if name == "tables.xlsx":
                return trueup.export(self.release, Path(scratch) / name).read_bytes(), FILES[name]
            folder = (
                trueup.export(self.release, Path(scratch) / "tables", "csv")
                if name == "tables.zip"
                else self.folder / "public"
            )
            return Path(make_archive(f"{scratch}/all", "zip", folder)).read_bytes(), FILES[name]


FILES = {
    "tables.zip": "application/zip",
    "tables.xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "report.html": "text/html; charset=utf-8",
    "spec.toml": "text/plain; charset=utf-8",
    "public.zip": "application/zip",
}
"""Files that can be downloaded."""


def _interval(count: Any, error: Any) -> dict[str, str]:
    if error is np.ma.masked or error != error:
        return {"count": f"{count:,}", "error": "not known", "low": "", "high": ""}
    return {
        "count": f"{count:,}",
        "error": f"{np.ceil(error - 1e-6):,.0f}",
        "low": f"{max(0, int(np.floor(count - error))):,}",
        "high": f"{int(np.ceil(count + error)):,}",
    }
