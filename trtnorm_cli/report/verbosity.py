"""The amount that a command tells, as -q and -v ask."""

from __future__ import annotations

import enum


class Verbosity(enum.IntEnum):
    """``QUIET`` shows results and warnings only, ``NORMAL`` what a user can act on, ``VERBOSE`` all that is known."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2
