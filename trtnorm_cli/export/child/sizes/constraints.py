"""The guards that torch.export logs while it traces, and the violations that it ends with.

Guards are recorded where they arise, so that a message can name the user's module and line. Violations are read from the
error's text, because PyTorch has no other form of them.
"""

from __future__ import annotations

import linecache
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from types import FrameType

from torch import nn

from trtnorm_cli.export.child.source import is_plumbing, shown
from trtnorm_cli.light_dataclass import dataclass

_LOGGER = "torch.fx.experimental.symbolic_shapes"
_GUARD = re.compile(r"eval (?!\[guard suppressed\])(?P<guard>.*) \[guard added\]")
_SYMBOL = re.compile(r"create_symbol (?P<symbol>\S+) = \S+ for (?P<source>.+?) \[")
_VIOLATED = re.compile(r"Not all values of .*? satisfy the generated guard (?P<guard>.*?)\.?$", re.MULTILINE)
_SPECIALISED = re.compile(r"You marked (?P<dim>\w+) as dynamic but your code specialized it to be a constant \((?P<size>\d+)\)")
_EQUAL = re.compile(r"The values of (?P<one>\w+) = .*? and (?P<other>\w+) = .*? must always be equal")
_FIX = re.compile(r"^\s+(?P<dim>\w+) = (?P<value>[^\n]+)$", re.MULTILINE)


@dataclass(frozen=True)
class Location:
    """The place in the user's model that a guard comes from."""

    module: str
    file: str
    line: int

    def __str__(self) -> str:
        code = linecache.getline(self.file, self.line).strip()
        place = f"{shown(self.file)}:{self.line}" + (f": {code}" if code else "")
        return f"{self.module} ({place})" if self.module else place


@dataclass(frozen=True)
class RecordedGuard:
    """A guard as PyTorch's log has it, over symbols such as ``s73``.

    ``internal`` says that the bookkeeping of memory layouts asked for it, and no code.
    """

    text: str
    location: Location | None
    internal: bool


@dataclass
class GuardLog:
    """Everything that was recorded during one trace. ``sources`` maps symbols to ``L['x'].size()[2]``."""

    guards: list[RecordedGuard] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Violations:
    """The contents of a constraint violation, by the names that the dimensions have in the trace."""

    guards: tuple[str, ...]
    specialised: dict[str, int]
    equal: tuple[tuple[str, str], ...]
    fixes: dict[str, str]
    text: str


def read_violations(text: str) -> Violations | None:
    """The violations in the text of an error of torch.export, or None when it is about something else."""
    if "Constraints violated" not in text and "specialized it to be a constant" not in text:
        return None
    told, _, suggested = text.partition("Suggested fixes:")
    return Violations(
        guards=tuple(dict.fromkeys(match["guard"] for match in _VIOLATED.finditer(told))),
        specialised={match["dim"]: int(match["size"]) for match in _SPECIALISED.finditer(told)},
        equal=tuple((match["one"], match["other"]) for match in _EQUAL.finditer(told)),
        fixes={match["dim"]: match["value"] for match in _FIX.finditer(suggested.split("\n\n")[0])},
        text=told.strip(),
    )


@contextmanager
def recorded_guards(module: nn.Module) -> Iterator[GuardLog]:
    """Record the guards that arise meanwhile, with the place in ``module`` where they do."""
    log = GuardLog()
    names = {id(child): name for name, child in module.named_modules()}
    handler = _Recorder(log, names)
    logger = logging.getLogger(_LOGGER)
    state = logger.level, logger.propagate, list(logger.handlers), logger.disabled
    logger.setLevel(logging.INFO)
    logger.propagate, logger.handlers, logger.disabled = False, [handler], False
    try:
        yield log
    finally:
        logger.setLevel(state[0])
        logger.propagate, logger.handlers, logger.disabled = state[1], state[2], state[3]


class _Recorder(logging.Handler):
    def __init__(self, log: GuardLog, names: Mapping[int, str]) -> None:
        super().__init__(logging.INFO)
        self.log, self.names = log, names

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if symbol := _SYMBOL.match(message):
            self.log.sources[symbol["symbol"]] = symbol["source"]
        elif guard := _GUARD.match(message):
            frames = list(_frames(sys._getframe(1)))
            internal = any(frame.f_code.co_filename.endswith("_prims_common/__init__.py") for frame in frames)
            self.log.guards.append(RecordedGuard(guard["guard"], self._location(frames), internal))

    def _location(self, frames: list[FrameType]) -> Location | None:
        """The innermost line of the user's code, and the innermost module that is being computed."""
        user = next((frame for frame in frames if not is_plumbing(frame.f_code.co_filename)), None)
        names = (self.names.get(id(frame.f_locals.get("self"))) for frame in frames)
        module = next((name for name in names if name), "")
        if user is None:
            return Location(module, "", 0) if module else None
        return Location(module, user.f_code.co_filename, user.f_lineno)


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
