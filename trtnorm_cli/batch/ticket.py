"""Tickets and outcomes: what a task gets, and what it gives back. Both are small, and files go through the store."""

from __future__ import annotations

from typing import Any, Literal

from trtnorm_cli.batch.address import Addresses
from trtnorm_cli.batch.inputs import Inputs
from trtnorm_cli.batch.job import Job
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record

State = Literal["done", "failed", "cancelled"]


@dataclass(frozen=True)
class Ticket(Record):
    """A job as a task gets it.

    ``here`` says that the worker reads the files of the plan in their place. ``memory`` is what each process may take.
    ``programs`` is the digest of those that its addresses are made with, which the worker must have.
    """

    job: Job
    inputs: Inputs
    addresses: Addresses
    store: str
    run: str
    programs: str
    here: bool = True
    with_report: bool = True
    memory: int | None = None


@dataclass(frozen=True)
class Problem(Record):
    """An error as a task tells it: the parts of a ``TrtnormError``."""

    summary: str
    where: str | None
    hint: str | None
    exit_code: int

    @staticmethod
    def of(error: TrtnormError, folder: str = "") -> Problem:
        """``folder`` is the task's own, which means nothing to the user."""

        def shown(text: str | None) -> str | None:
            return text.replace(f"{folder}/", "") if text and folder else text

        return Problem(shown(error.summary) or "", shown(error.where), shown(error.hint), error.exit_code)


@dataclass(frozen=True)
class Outcome(Record):
    """The end of one task. ``result`` is what the store has of it; ``was_there`` where somebody else had done it."""

    state: State
    result: dict[str, Any] | None = None
    problem: Problem | None = None
    was_there: bool = False
    attempt: int = 1
    seconds: float = 0.0
    worker: str = ""
