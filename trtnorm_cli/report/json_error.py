"""The error that a command with ``--json`` ends with, as its form is described."""

from __future__ import annotations

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record


@dataclass(frozen=True)
class ErrorRecord(Record):
    """One error: what happened, where, how to fix it, and the exit code of the command."""

    summary: str
    where: str | None
    hint: str | None
    exit_code: int


@dataclass(frozen=True)
class ErrorOutput(Record):
    """The only key of the output of a command that ends with an error."""

    error: ErrorRecord
