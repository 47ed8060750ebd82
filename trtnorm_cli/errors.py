"""Every error a user can meet, with what happened, where, and how to fix it.

This module knows neither click nor logging. ``cli.py`` is the one place that turns these errors into text and exit codes.
"""

from __future__ import annotations

from pathlib import Path


class TrtnormError(Exception):
    """A problem that is explained to the user instead of shown as a traceback.

    ``summary`` says what happened in one sentence, ``where`` names the file, YAML key and line, node, tensor or rule, and
    ``hint`` says how to fix it.
    """

    exit_code = 70

    def __init__(self, summary: str, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(summary)
        self.summary = summary
        self.where = where
        self.hint = hint


class OutOfTolerance(TrtnormError):
    """A candidate does not compute what the reference computes."""

    exit_code = 1


class NotReproducible(TrtnormError):
    """The same input gave different bytes."""

    exit_code = 1


class UsageProblem(TrtnormError):
    """The command line asks for something that cannot be done as asked."""

    exit_code = 2


class ProfileError(TrtnormError):
    """The build profile is not valid, or does not fit the model."""

    exit_code = 2


class ModelError(TrtnormError):
    """The model cannot be read, exported, or is not valid ONNX."""

    exit_code = 3


class RewriteError(TrtnormError):
    """A rewrite failed its check, or an ambiguous model was refused."""

    exit_code = 4


class LimitReached(TrtnormError):
    """A command needs more than it may take."""

    exit_code = 6


class NotCompared(TrtnormError):
    """A comparison that was asked for could not be made."""

    exit_code = 5


class BuilderFailure(TrtnormError):
    """There is no engine, or no network, because TensorRT refused the model or died on it.

    ``evidence`` is a folder that stays for a report, where it is not the work folder of the build.
    """

    evidence: Path | None = None


class TensorRTRefusal(BuilderFailure):
    """TensorRT refused the model. ``nodes`` are those of the model that it was given which its messages name."""

    exit_code = 5
    nodes: tuple[str, ...] = ()


class BuilderDied(BuilderFailure):
    """The builder crashed, was killed, or ran out of time or memory."""

    exit_code = 6


class NoRoom(TrtnormError):
    """A disk is full."""

    exit_code = 6
