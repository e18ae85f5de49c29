"""What the pages of one studio share: a project to design, or a bundle to explore."""

from __future__ import annotations

from pathlib import Path

from trueup import Spec, TrueupError, parse_spec
from trueup.studio.accuracy import Plans
from trueup.studio.explore import Explorer
from trueup.studio.project import Project


class Studio:
    """A project, or a bundle, with what was computed of it.

    Parameters
    ----------
    project
        What is designed; None where a bundle is explored alone.
    bundle
        What is explored.
    """

    def __init__(self, project: Project | None = None, bundle: Path | None = None) -> None:
        self.project = project
        self._plans: Plans | None = None
        self._explorer = Explorer(bundle) if bundle else None

    @property
    def open_project(self) -> Project:
        """The project; the routes that ask for it exist with it alone."""
        assert self.project is not None
        return self.project

    def explorer(self) -> Explorer:
        """The bundle that is explored: the one that was given, or the one that was released here.

        Raises
        ------
        TrueupError
            If there is none yet.
        """
        if self._explorer is None:
            out = self.open_project.choices.out
            if not out or not (Path(out) / "public").is_dir():
                raise TrueupError("nothing is released yet", remedy="go to the step 'Release'")
            self._explorer = Explorer(Path(out))
        return self._explorer

    def plans(self) -> Plans:
        """The planner of the spec as it stands."""
        project = self.open_project
        choices = project.choices
        text = choices.candidates or project.text
        if self._plans is None or not self._plans.fits(text, choices):
            self._plans = Plans.of(text, choices)
        return self._plans

    def forget_release(self) -> None:
        """Another folder is released into."""
        self._explorer = None

    @property
    def spec(self) -> Spec:
        """The project's spec.

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
        """The spec with all tables that may be measured: before a plan left some out.

        Raises
        ------
        TrueupError
            If there is none yet.
        """
        text = self.open_project.choices.candidates
        return parse_spec(text) if text else self.spec
