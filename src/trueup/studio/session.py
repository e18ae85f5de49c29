"""Shared state of one studio's pages: a project to design, or a bundle to explore."""

from __future__ import annotations

from pathlib import Path

from trueup import Spec, TrueupError, parse_spec
from trueup.releasing.by_size import MarginsBySize
from trueup.studio import jobs
from trueup.studio.accuracy import Plans
from trueup.studio.explore import Explorer
from trueup.studio.project import Project


class Studio:
    """A project, or a bundle, with what was computed of it.

    Parameters
    ----------
    project
        What is designed; None where a bundle is explored alone.
    bundle, shapes
        What is explored, and the path of the outlines of its places.
    """

    def __init__(self, project: Project | None = None, bundle: Path | None = None, shapes: str = "") -> None:
        self.project = project
        self._plans: Plans | None = None
        self._explorer = Explorer(bundle, shapes) if bundle else None
        self._sized: tuple[int, str] = (-1, "")
        self._by_size: tuple[int, MarginsBySize | None] = (-1, None)

    @property
    def open_project(self) -> Project:
        """Return the project; only routes of a studio with a project call this."""
        assert self.project is not None
        return self.project

    def explorer(self) -> Explorer:
        """Return the bundle that is explored: the given one, or the one released here."""
        if self._explorer is None:
            out = self.open_project.choices.out
            if not out or not (Path(out) / "public").is_dir():
                raise TrueupError("nothing is released yet", remedy="go to the step 'Release'")
            self._explorer = Explorer(Path(out), self.open_project.choices.shapes)
        return self._explorer

    def plans(self) -> Plans:
        """Return the planner of the spec as it stands."""
        project = self.open_project
        choices = project.choices
        text = choices.candidates or project.text
        if self._plans is None or not self._plans.fits(text, choices):
            self._plans = Plans.of(text, choices)
        return self._plans

    def sized(self) -> str:
        """Return the spec for margins by size: all tables that may be measured, and the method as chosen."""
        choices = self.open_project.choices
        if self._sized[0] != choices.revision:
            candidates = self.candidates.model_copy(update={"reconcile": self.spec.reconcile})
            self._sized = choices.revision, candidates.text()
        return self._sized[1]

    def by_size(self) -> MarginsBySize | None:
        """Return margins by size, once simulated for this spec and these places; None before."""
        choices = self.open_project.choices
        if self._by_size[0] != choices.revision:  # what is simulated stays so until something else is decided
            task = {"spec": self.sized(), "table": choices.table, "places": choices.places}
            found = jobs.newest(self.open_project.folder, "sizes", **task)
            if found is None or found.result is None:
                return None
            self._by_size = choices.revision, MarginsBySize.read(found.result)
        return self._by_size[1]

    def forget_release(self) -> None:
        """Forget the explored release, because another folder is released into."""
        self._explorer = None

    @property
    def spec(self) -> Spec:
        """Return the project's spec.

        Raises
        ------
        TrueupError
            If there is none yet.
        """
        spec = self.open_project.spec
        if spec is None:
            raise TrueupError("there is no spec yet", remedy="name the table in the first step")
        return spec

    @property
    def candidates(self) -> Spec:
        """Return the spec with all tables that may be measured, before a plan left some out.

        Raises
        ------
        TrueupError
            If there is none yet.
        """
        text = self.open_project.choices.candidates
        return parse_spec(text) if text else self.spec
