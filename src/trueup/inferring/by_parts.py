"""The posterior of a large tree by parts: on any engine, within bounded memory, resumed after any kill.

The driver estimates the prior, as in memory; parts are looked at, solved up to the top, drawn and written. All that the parts
come to stands in a run folder beside the target until the posterior is whole: the same command goes on from there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trueup.errors import SpecError
from trueup.files.memory import CELL, PROCESS, refuse_needed
from trueup.files.owner import owning
from trueup.files.staging import staged, write_whole, writing
from trueup.files.target import refuse_occupied
from trueup.inferring import choose_inference
from trueup.inferring.given import (
    Given,
    measured_once,
    prior_instead,
    read_given,
    refuse_draws,
    refuse_fractions,
)
from trueup.inferring.method import InferenceMethod, Progress, announce, inference_misfit, silent
from trueup.inferring.tree_exact import TreeExact
from trueup.inferring.tree_state import DEPTHS, FINE, TreeState
from trueup.inferring.tree_work import AllowedWork, pass_cost
from trueup.inferring.written_parts import WantedAreas, WrittenParts
from trueup.io.bundle.posterior import MOST_ROWS
from trueup.model.constraints import Constraints
from trueup.model.methods import describe, refuse_method
from trueup.model.records.measurements import Measurements
from trueup.model.spec import Spec
from trueup.model.tables import probability_of
from trueup.planning.areas import AreaTable
from trueup.run.deadline import Deadline
from trueup.run.executor import Executor
from trueup.run.kept import KeptExecutor

NO_END_MINUTES = 1e8
"""What is begun by parts ends by itself, or is ended and gone on with."""
TOGETHER = 16
"""Parts of the tree that a worker looks at or solves at a time."""
START_SECONDS, PRODUCT_SECONDS, NODE_SECONDS, DRAW_SECONDS = 5.0, 2.5e-10, 4e-5, 2e-7
"""Seconds of a processor to estimate the prior, and for each product of one pass up, each node, and each draw of a cell."""
NODE_BYTES, ROW_BYTES = 400, 2.0
"""Bytes of the driver for each node, and of the disk for each draw of a cell."""


class Prediction(NamedTuple):
    """The predicted cost of a posterior by parts: seconds of a processor, bytes of memory and of disk."""

    core_seconds: float
    memory: float
    disk: float

    @classmethod
    def of(cls, state: TreeState, values: NDArray, draws: int, workers: int) -> Prediction:
        """Return the prediction, from the windows of tables."""
        nodes, cells = len(state.child_ptr) - 1, len(state.problem.nested.nodes[-1])
        windows = state.windows(values, np.full(nodes, DEPTHS[FINE]))
        products = PRODUCT_SECONDS * pass_cost(state.child_ptr, *windows)
        seconds = START_SECONDS + products + NODE_SECONDS * nodes + DRAW_SECONDS * draws * cells
        memory = PROCESS * (1 + (workers if workers > 1 else 0)) + NODE_BYTES * nodes
        return cls(seconds, memory, ROW_BYTES * draws * cells + CELL * nodes)


def infer_by_parts(
    source: Given,
    out: str | Path,
    executor: Executor,
    *,
    spec: Spec | Constraints | None = None,
    method: InferenceMethod | None = None,
    draws: int = 1000,
    level: float | str = 0.9,
    areas: AreaTable | None = None,
    by: Sequence[str] = (),
    keep_draws: bool = True,
    memory: int | None = None,
    take_over: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the posterior of a large tree to a folder, part by part.

    Parameters
    ----------
    source, spec, method, draws, level, progress
        As `infer` has them.
    out
        A new folder; beside it `OUT.run` holds what is done until all is.
    executor
        Carries out what is done to parts.
    areas, by
        Areas off the hierarchy, and the attributes that are kept of them.
    keep_draws
        Whether the draws are written, or their summaries alone.
    memory
        Bytes for all processes together; what is predicted to need more is refused.
    take_over
        Whether somebody says that the process of another machine, which gives no sign of life, is dead.

    Returns
    -------
    The manifest. Equal sources give the draws that `infer` gives, on whatever engine.

    Raises
    ------
    SpecError
        If the method is none of trees, or the tree is too small to be cut.
    ConvergenceError
        If no windows of counts hold the posterior.
    """
    out, level, tell = Path(out), probability_of(level), progress or silent
    measured, constraints, entry = read_given(source, spec)
    refuse_draws(draws)
    refuse_fractions(measured)
    entry = {key: held for key, held in entry.items() if key not in ("minutes", "quantity")}
    chosen = method or choose_inference(entry, constraints, measured)
    refuse_method(chosen, inference_misfit(chosen, constraints, measured))
    instead = {} if method or "prior" in entry else prior_instead(chosen, constraints, measured)
    used, repeated = measured_once(measured)
    tree, state = _cut(chosen, chosen.prepare(constraints, used.headers), used)
    expected = Prediction.of(state, used.flat, draws, executor.workers)
    announce(
        tell, f"about {expected.core_seconds / 3600:.2g} core-hours and {expected.disk / 1e9:.2g} GB of disk"
    )
    refuse_needed("the posterior", expected.memory, memory)
    refuse_occupied(out)
    with _run_folder(out, take_over) as run:
        rng = measured.rng()
        work = AllowedWork(deadline=Deadline.of(NO_END_MINUTES))
        found = tree.solved(state, used.flat, draws, rng, tell, KeptExecutor(executor, run, TOGETHER), work)  # pyright: ignore[reportArgumentType]
        if found.top is None:
            raise _too_small(state)
        wanted = None if areas is None else WantedAreas.of(measured.cells, areas, tuple(by))
        most = max(1, MOST_ROWS // draws)
        written = WrittenParts(measured, found, draws, level, wanted, keep_draws, most)
        with staged(out) as folder:
            stats, means = written.write(folder, KeptExecutor(executor, run), rng, tell)
            doubts = tree.doubt(constraints, used.headers), *getattr(measured.spec, "noted", ())
            more = {
                "repeated_values": repeated,
                "doubt": " ".join(filter(None, doubts)),
                **instead,
            }
            stats |= {name: said for name, said in more.items() if said}
            manifest = written.manifest(folder, stats, means, describe(chosen))
            write_whole(folder / "manifest.json", json.dumps(manifest, indent=2, default=str) + "\n")
        shutil.rmtree(run)
    return manifest


def _cut(chosen: InferenceMethod, state: Any, used: Measurements) -> tuple[TreeExact, TreeState]:
    """Refuse what is not inferred by parts."""
    if not isinstance(chosen, TreeExact) or chosen.mode or chosen.tier == "approximate":
        raise SpecError(
            f"'{chosen.name}' with these parameters is given, and parts are parts of a tree",
            needed=f"the method '{TreeExact.name}' without its mode, by exact messages",
            remedy="leave out --engine",
        )
    if odd := next((h for h in used.headers if not (h.law.additive or h.exact) or h.margin.where), None):
        raise SpecError(
            f"'{odd.query}' of '{odd.margin}' has the law '{odd.law.name}', or a condition, and parts are inferred from noise "
            "that is added to whole margins",
            remedy="leave out --engine",
        )
    if state.cut is None:
        raise _too_small(state)
    state.refuse_impossible(used.flat)
    return replace(chosen, tier="exact"), state


def _too_small(state: TreeState) -> SpecError:
    return SpecError(
        f"a tree of {len(state.child_ptr) - 1:,} counts is inferred in memory", remedy="leave out --engine"
    )


@contextmanager
def _run_folder(out: Path, take_over: bool) -> Iterator[Path]:
    run = out.absolute().with_name(f"{out.name}.run")
    with writing(run):
        run.mkdir(mode=0o700, exist_ok=True)
    with owning(run, take_over=take_over):
        yield run
