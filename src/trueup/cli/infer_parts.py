"""`trueup infer --engine`: the posterior of a large tree, histogram or family by parts."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from trueup.cli.app import say_resume
from trueup.cli.options import ENGINE, OUTPUT, memory_limit, option
from trueup.cli.printing import print_json
from trueup.cli.progress import Tell, progress, writing_log
from trueup.errors import BusyError, SpecError

EngineOfParts = Annotated[
    str | None,
    option(
        "--engine",
        "local or spark: a large tree, histogram or family of tables by parts, which the same command goes on with after a kill.",
        ENGINE,
    ),
]
SummariesAlone = Annotated[bool, option("--summaries-alone", "By parts, write no draws.", OUTPUT)]


@dataclass(frozen=True)
class InferenceByParts:
    """The options of an inference by parts.

    Attributes
    ----------
    areas, column, by
        A file of areas off the hierarchy, its column of areas, and the attributes that are kept.
    """

    engine: str
    master: str | None
    workers: int
    memory: str | None
    draws: int
    level: str
    areas: Path | None
    column: str
    by: str | None
    log: Path | None
    take_over: bool
    summaries_alone: bool
    as_json: bool

    def run(self, bundle: Path | None, out: Path | None, idle: Mapping[str, Any]) -> None:
        """Infer a bundle, and print where its posterior stands; `idle` are options that have no effect."""
        from trueup.inferring.by_parts import infer_by_parts
        from trueup.io.bundle.manifest import read_spec
        from trueup.io.bundle.read import read_measurements
        from trueup.planning.areas import AreaTable

        if given := next((name for name, value in idle.items() if value), None):
            raise SpecError(f"{given} has no effect by parts", remedy=f"leave out {given} or --engine")
        if bundle is None or out is None:
            raise SpecError(
                "--engine is given without a bundle or --out",
                needed="trueup infer BUNDLE --engine local --out NEW",
            )
        measured = read_measurements(bundle)
        table = None if self.areas is None else AreaTable.read(self.areas, self.column, measured.cells)
        with (
            _going_on(out),
            self._executor() as executor,
            progress(quiet=self.as_json) as tell,
            writing_log(self.log, lambda what, done, of: tell(what, done, of)) as watch,
        ):
            manifest = infer_by_parts(
                measured,
                out,
                executor,
                spec=read_spec(bundle)[1],
                draws=self.draws,
                level=self.level,
                areas=table,
                by=[name.strip() for name in (self.by or "").split(",") if name.strip()],
                keep_draws=not self.summaries_alone,
                memory=memory_limit(self.memory),
                take_over=self.take_over,
                progress=_Watched(watch, tell),
            )
        if self.as_json:
            print_json({"out": str(out)} | {k: manifest[k] for k in ("draws", "intervals", "shape", "stats")})
            return
        print(f"{self.draws:,} {manifest['draws']} of {manifest['shape']['cells']:,} cells, by parts.")
        print(manifest["intervals"])
        draws = next((f", draws: {path}" for path in out.glob("draws*")), "")
        print(f"Tables: {out}/summary{draws}")

    def _executor(self) -> Any:
        if self.engine == "spark":
            from trueup.run.spark import SparkCluster

            return SparkCluster(self.master, workers=None if self.workers == 1 else self.workers)
        if self.engine != "local":
            raise SpecError(f"there is no engine '{self.engine}' by parts", needed="local or spark")
        from trueup.run.local import LocalPool

        return LocalPool(self.workers)


@dataclass(frozen=True)
class _Watched:
    """Progress of drawing, and the stages before it."""

    watch: Callable[[str, int, int], None]
    tell: Tell

    def __call__(self, done: int, of: int) -> None:
        self.watch("drawing", done, of)

    def stage(self, text: str) -> None:
        """Name the stage that begins."""
        self.watch(text, 0, 1)


@contextmanager
def _going_on(out: Path) -> Iterator[None]:
    """Print how to go on if the command ends with an error after a run has begun."""
    try:
        yield
    except BusyError:  # it is being worked on
        raise
    except BaseException:
        if out.with_name(f"{out.name}.run").exists():
            say_resume(shlex.join(["trueup", *sys.argv[1:]]))
        raise
