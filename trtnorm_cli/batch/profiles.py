"""The build profile of a job: that of its file, with the plan's settings put over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from trtnorm_cli.batch.matrix import merged
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.export.opening import in_precision
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.load import load_profile, parse_profile
from trtnorm_cli.profile.messages import problems_of
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.plugins import library_problems
from trtnorm_cli.profile.positions import Positions
from trtnorm_cli.profile.problems import refusal
from trtnorm_cli.profile.yaml_tree import read_tree
from trtnorm_cli.record import Record


@dataclass(frozen=True)
class PlannedSettings(Record):
    """A build profile as it travels to a worker: the text of its file, and what is put over it."""

    text: str | None
    source: str | None
    settings: dict[str, Any]
    precision: str | None

    @staticmethod
    def of(path: str | None, settings: dict[str, Any], precision: str | None) -> PlannedSettings:
        """Raises ``ProfileError`` where the file cannot be read or is not valid."""
        text = None if path is None else load_profile(Path(path)).positions.text
        return PlannedSettings(text, path, settings, precision)

    def profile(self, source: Path | None = None) -> BuildProfile | None:
        """The build profile; ``source`` is where its file is on this machine, for relative paths in it.

        Raises ``ProfileError`` where the settings do not go together.
        """
        named = None if self.source is None else str(source or self.source)
        found = None if self.text is None else parse_profile(self.text, named)
        if self.settings:
            found = self._with_settings(named)
        if self.precision is not None:
            found = in_precision(found, self.precision)
        if found is not None and (problems := list(library_problems(found, Path(named or ".").parent))):
            raise refusal(problems, found.positions)
        return found

    def _with_settings(self, named: str | None) -> BuildProfile:
        tree = None if self.text is None else read_tree(self.text, named)
        below = {} if tree is None else tree.value
        lines = Positions(named) if tree is None else tree.positions
        try:
            made = BuildProfile.model_validate(merged(below, self.settings))
        except ValidationError as error:
            refused = refusal(problems_of(error, lines), lines)
            hint = "this is the build profile with the plan's settings put over it" + (
                f"\n{refused.hint}" if refused.hint else ""
            )
            raise ProfileError(refused.summary, refused.where, hint) from error
        # Without the text: who reads the profile again must not read the file alone.
        return made.located(Positions(named, lines.lines))
