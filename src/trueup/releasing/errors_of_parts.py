"""The errors to expect of a run by parts: simulated in memory on some places of one part, with all above them."""

from __future__ import annotations

import numpy as np

from trueup.errors import TrueupError
from trueup.files.source import connect
from trueup.io.bundle.tables import read_counted
from trueup.model.cells import Cells
from trueup.model.problem import Problem
from trueup.model.records.expected_errors import ExpectedErrors
from trueup.reconciling import Prepared
from trueup.reconciling.expected_errors import WORK, some_places
from trueup.reconciling.method import Method
from trueup.releasing.run_folder import RunFolder
from trueup.releasing.tasks import level_part


def errors_of_parts(folder: RunFolder, method: Method) -> ExpectedErrors:
    """Simulate the errors of a run whose tables are settled; equal measurements give equal figures."""
    rng = np.random.default_rng([int(folder.seal, 16), 1])
    last, tree = len(folder.spec.levels) - 1, folder.tree()
    parts = folder.cut.bundles[-1]
    part = parts[int(rng.integers(len(parts)))]
    branch = folder.branch(part)
    of_part = folder.cells(branch)
    file = folder.tables.path(level_part(last, part))
    with connect(files=[file], threads=1) as connection:
        counts, _ = read_counted(connection, [file], of_part, of_part.finest)
    first = int(branch.starts[-1])
    within, _ = tree.only(last, first + np.arange(of_part.shape[0]))
    cells, leaves = some_places(Cells(within, of_part.attributes), WORK // method.effort, rng)
    some = np.asarray(counts).reshape(of_part.shape[0], -1)[leaves].ravel()
    said = f"{cells.shape[0]:,} of {tree.sizes[-1]:,} places"
    try:
        local = Problem(folder.spec, cells)
        simulation = Prepared.of(local.constraints, local.headers, method).simulation
        return simulation.simulate(some, None, local.headers, rng, said=said)
    except (
        TrueupError
    ) as error:  # rules may name places that were not chosen; the release does not depend on it
        return ExpectedErrors((), f"Errors could not be simulated on {said}: {error}")
