"""Run the one build that counts, and on demand find and save the smallest part of the model that fails in the same way."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx

from trtnorm_cli import __version__
from trtnorm_cli.errors import BuilderDied, TensorRTRefusal, TrtnormError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.progress import Stage, stage
from trtnorm_cli.scratch import BESIDE, Scratch
from trtnorm_cli.side_work import Awaited
from trtnorm_cli.tensorrt.explain import refusal
from trtnorm_cli.tensorrt.isolate import (
    NOT_OF_A_PART,
    BuildFailure,
    Isolated,
    Isolation,
    Profiles,
    death_of,
    failure_of,
    named_nodes,
)
from trtnorm_cli.tensorrt.launch import WORKER_MODULE
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.plugin_request import with_plugins
from trtnorm_cli.tensorrt.request import LOG_FILE, BuildRequest, BuildResult

Run = Callable[[BuildRequest, Path], BuildResult]
_MODEL = "model.onnx"
_README = "README.txt"
# A report should be small enough to attach; above this the weights go to a file of their own.
_EXTERNAL_FROM = 32 << 20


@dataclass(frozen=True)
class Attempt:
    """A build, with the rewritten model and the user's own to explain its failure.

    External tensors of ``model`` are relative to ``data_folder``.
    """

    request: BuildRequest
    work: Path
    model: onnx.ModelProto
    data_folder: Path
    subject: Subject
    run: Run

    def result(self, built: Awaited[BuildResult], isolated: Path | None) -> BuildResult:
        """The result ``built`` of the request if it succeeded. Raises the error that explains a failure.

        With ``isolated``, the name for a folder, the smallest failing part of the model is searched and saved there first.
        """
        try:
            result = built.result()
        except BuilderDied as death:
            raise self._with_part(death, death_of(death), [], isolated) from death
        if result.ok:
            return result
        error = refusal(result, self.model, self.work, self.subject)
        if isolated is None or not isinstance(error, TensorRTRefusal) or not result.errors or result.stage in NOT_OF_A_PART:
            raise error
        raise self._with_part(error, failure_of(result, self.model), named_nodes(result, self.model), isolated)

    def _with_part(self, error: TrtnormError, failure: BuildFailure, named: list[str], isolated: Path | None) -> TrtnormError:
        """``error``, with the place of the smallest failing part where one was wanted."""
        if isolated is None:
            return error
        with stage("isolate", unit="trials") as told:
            search = Isolation(self.model, self.request.profiles, self._build_part, failure, partial(_tell_of_trial, told))
            told.expect(search.max_trials)
            found = search.search(named)
        if found is None:
            said = f"no part of the model fails in the same way on its own ({_counted(search.trials, 'trial')})"
        else:
            folder = self._save(found, error, _free(isolated))
            trials = _counted(found.trials, "trial")
            said = f"smallest failing part: {folder} ({found.nodes} of {_counted(found.of, 'node')}, {trials})"
        hints = [line for line in (error.hint or "").splitlines() if not line.endswith(" --isolate")]
        return type(error)(error.summary, "\n".join(filter(None, [error.where, said])), "\n".join(hints) or None)

    def _build_part(self, model: onnx.ModelProto, profiles: Profiles) -> BuildResult:
        folder = Path(tempfile.mkdtemp(prefix="part-", dir=self.work))
        try:
            save_model(model, folder / _MODEL, self.data_folder)
            return self.run(self._request_for(model, profiles, folder), folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _request_for(self, model: onnx.ModelProto, profiles: Profiles, folder: Path) -> BuildRequest:
        request = replace(self.request, model=_MODEL, engine=str(folder / "model.engine"), profiles=profiles)
        return with_plugins(request, model, self.request.plugins) if self.request.plugins else request

    def _save(self, found: Isolated, error: TrtnormError, target: Path) -> Path:
        """Write the part as a work folder that the build process takes as it is. It gets its name when it is complete."""
        with Scratch(BESIDE, target.parent) as scratch:
            folder = scratch / target.name
            folder.mkdir()
            save_model(found.model, folder / _MODEL, self.data_folder, external_from=_EXTERNAL_FROM)
            # No such folder exists: the engine, if there ever is one, then goes beside the model.
            request = self._request_for(found.model, found.profiles, Path("nowhere"))
            try:
                version = self.run(request, folder).version
            except BuilderDied:
                version = ""
            (folder / _README).write_text(_report(found, error, request, version, target), encoding="utf-8")
            folder.replace(target)
        return target


def _tell_of_trial(told: Stage, number: int, nodes: int, fails: bool) -> None:
    told.at(f"{_counted(nodes, 'node')}: {'fails in the same way' if fails else 'does not fail in this way'}")
    told.reach(number)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _free(folder: Path) -> Path:
    """``folder``, or the first name with a number behind it that does not exist."""
    number, free = 1, folder
    while free.exists():
        number += 1
        free = folder.with_name(f"{folder.name}-{number}")
    return free


def _report(found: Isolated, error: TrtnormError, request: BuildRequest, version: str, target: Path) -> str:
    lines = [
        error.summary,
        *(line for line in (error.where or "").splitlines() if not line.startswith(("log: ", "work folder "))),
        "",
        f"{_MODEL}: {found.nodes} of {_counted(found.of, 'node')}, the smallest part that was found to fail in this way",
        f"failure: {found.failure.kind}" + (f" at {found.failure.operator}" if found.failure.operator else ""),
        f"trtnorm {__version__}, {request.backend or 'TensorRT'} {version}, onnx {onnx.__version__}",
        f"{LOG_FILE}: what TensorRT said of this part",
        f"to repeat it: python -m {WORKER_MODULE} {target.name}",
    ]
    return "\n".join(lines) + "\n"


def isolated_folder(engine: Path) -> Path:
    """The folder where the smallest failing part of the model of ``engine`` is saved."""
    return engine.with_name(f"{engine.stem}.isolated")
