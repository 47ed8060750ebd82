"""The command line's part of a comparison."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path

from trtnorm_cli.compare.result import Options
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.model import Tolerance


@dataclass(frozen=True)
class Settings:
    """How to draw inputs, what to compare, and how.

    ``in_between`` is the number of random shapes between min and max, ``data`` the user's own inputs instead of drawn ones.
    ``tolerance`` overrides those of the build profile. ``save_to`` is the stem of the files that show a difference.
    ``weights`` and ``snap`` are for the rewriting that is compared where no candidate is named. With ``may_be_smaller`` float64
    may look at smaller images than the model's own, which take ``share_of_smaller`` of the multiply-adds at most.
    """

    options: Options = field(default_factory=Options)
    seed: int = 0
    in_between: int = 2
    data: Path | None = None
    tolerance: Tolerance | None = None
    backend: str | None = None
    find_blame: bool = True
    save_to: Path | None = None
    snap: bool = False
    weights: Path | None = None
    may_be_smaller: bool = False
    share_of_smaller: float = 0.45
