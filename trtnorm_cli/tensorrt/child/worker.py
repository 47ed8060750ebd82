"""The child process that builds one engine. No other module drives a TensorRT builder.

    python -m trtnorm_cli.tensorrt.child.worker WORK_FOLDER [EVENTS_FD]

It reads ``request.json``, reports progress as JSON lines on EVENTS_FD (if given), writes the engine, and writes ``result.json``
last. TensorRT's whole VERBOSE log goes to ``build.log``.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from trtnorm_cli.child_process import die_with_parent, run_with_large_stack
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.files import save_in_one_step
from trtnorm_cli.records.engine_parts import Binding, CompiledLayer
from trtnorm_cli.tensorrt import plugins
from trtnorm_cli.tensorrt.backend import Backend, load_backend
from trtnorm_cli.tensorrt.catalogue import is_missing_driver_noise
from trtnorm_cli.tensorrt.child import shape_ranges, timing_cache
from trtnorm_cli.tensorrt.child.attention import allow_decomposition
from trtnorm_cli.tensorrt.child.describe import inputs_of, layers_of, outputs_of
from trtnorm_cli.tensorrt.child.engine_output import write_engine
from trtnorm_cli.tensorrt.child.io_table import read_io_table
from trtnorm_cli.tensorrt.child.plan import CompiledFor, compiled_for
from trtnorm_cli.tensorrt.child.process_copy import Copy
from trtnorm_cli.tensorrt.gpu import device_names
from trtnorm_cli.tensorrt.layer_table import is_layer_table, read_layer_table
from trtnorm_cli.tensorrt.logger import make_logger
from trtnorm_cli.tensorrt.parser_errors import parser_errors
from trtnorm_cli.tensorrt.request import (
    CANNOT_WRITE,
    LOG_FILE,
    NETWORK_RESULT_FILE,
    BuildRequest,
    BuildResult,
    TensorRTMessage,
)
from trtnorm_cli.tensorrt.settings import apply_settings, faults_of, notes_of


class Refused(Exception):
    """TensorRT refused at ``stage``, with its reasons in ``messages``."""

    def __init__(self, stage: str, messages: list[TensorRTMessage]) -> None:
        super().__init__(stage)
        self.stage = stage
        self.messages = messages


class Events:
    """Progress as JSON lines on a file descriptor, or none without one."""

    def __init__(self, descriptor: int | None) -> None:
        self._stream: TextIO | None = os.fdopen(descriptor, "w", buffering=1) if descriptor is not None else None

    def send(self, **event: Any) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(json.dumps(event) + "\n")
        except BrokenPipeError:
            self._stream = None


_MOST_COPIED_BYTES = 1 << 30
_IN_HAND = re.compile(r"Parsing node: (.*) \[(\w+)\]$")


class BuildLog:
    """The whole log of a build, written to ``file``, and what it alone tells."""

    def __init__(self, file: TextIO) -> None:
        self.file = file
        # Name and operator of the node that the parser has in hand: some of its errors name none.
        self.node: tuple[str, str] = ("", "")
        self.kernels: tuple[CompiledLayer, ...] = ()
        self.bindings: tuple[Binding, ...] = ()

    def hear(self, severity: str, message: str) -> bool:
        self.file.write(f"[{severity}] {message}\n")
        if severity in ("INFO", "VERBOSE"):
            if in_hand := _IN_HAND.match(message):
                self.node = (in_hand[1], in_hand[2])
            elif is_layer_table(message):
                self.kernels = read_layer_table(message)
                self.bindings = read_io_table(message)
        return True


def make_monitor(trt: Any, events: Events) -> Any:
    """A ``trt.IProgressMonitor`` that forwards each phase and step as an event."""

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            events.send(event="phase", phase=phase_name, parent=parent_phase or "", steps=num_steps)

        def step_complete(self, phase_name: str, step: int) -> bool:
            events.send(event="step", phase=phase_name, step=step)
            return True

        def phase_finish(self, phase_name: str) -> None:
            events.send(event="finish", phase=phase_name)

    return Monitor()


class Build:
    """One build from request to result. Every step either returns or raises ``Refused``."""

    def __init__(self, folder: Path, request: BuildRequest, backend: Backend, events: Events, log: TextIO) -> None:
        self.folder, self.request, self.backend, self.events = folder, request, backend, events
        self.trt = backend.trt
        self.log = BuildLog(log)
        self.logger = make_logger(self.trt, self.log.hear)
        self.seconds: dict[str, float] = {}
        self._writing: Copy | None = None

    def run(self) -> BuildResult:
        self.builder = self.trt.Builder(self.logger)
        network = self._timed("parse", self._parse)
        if self.request.network is not None:
            self._begin_network(network, self.request.network)
        allow_decomposition(network, self.backend)
        if self.request.parse_only:
            return BuildResult(ok=True, stage="parse", backend=self.backend.name, version=self.backend.version)
        inputs, outputs, layers = inputs_of(network), outputs_of(network), layers_of(network, self.trt)
        config = self._configure(network)
        path = self._timed("build", lambda: self._build(network, config))
        try:
            self._require_all_profiles()
            if warnings := shape_ranges.inconsistent(self.logger.warnings):
                raise Refused("profile", [TensorRTMessage(text) for text in warnings])
            compiled = self._require_targets(path)
        except Refused:
            path.unlink()
            raise
        return BuildResult(
            ok=True,
            stage="done",
            backend=self.backend.name,
            version=self.backend.version,
            warnings=(*self.backend.skipped, *self._notes(), *unique(self.logger.warnings)),
            inputs=inputs,
            outputs=outputs,
            layers=layers,
            kernels=self.log.kernels,
            bindings=self.log.bindings,
            targets=compiled.targets if compiled else (),
            newer_too=compiled is not None and compiled.newer_too,
            devices=device_names(),
            engine_bytes=path.stat().st_size,
            seconds=self.seconds,
        )

    def _notes(self) -> list[str]:
        return notes_of(self.request.settings, self.backend.name, self.backend.capabilities)

    def _timed(self, name: str, step: Any) -> Any:
        self.events.send(event="stage", stage=name)
        start = time.perf_counter()
        value = step()
        self.seconds[name] = round(time.perf_counter() - start, 3)
        return value

    def _parse(self) -> Any:
        network = self.builder.create_network(self.backend.network_flags())
        self.parser = self.trt.OnnxParser(network, self.logger)
        if problems := plugins.make_ready(self.backend, self.logger, self.parser, self.request):
            raise Refused(plugins.STAGE, problems)
        if not self.parser.parse_from_file(str(self.folder / self.request.model)):
            raise Refused(
                "parse", [*self._weight_errors(), *parser_errors(self.parser, self.log.node)] or self._logged_errors()
            )
        if network.num_layers == 0 and network.num_outputs == 0:
            text = "the parser reported success, but the network it made has no layers and no outputs"
            raise Refused("parse", [TensorRTMessage(text)])
        return network

    def _begin_network(self, network: Any, name: str) -> None:
        """Write the network as it is now, beside the build, which may change it.

        Where its weights are large, two processes that map them take longer than one: 3 s of the processor for 2.6 GB.
        """
        size = sum(file.stat().st_size for file in self.folder.iterdir() if file.is_file())
        if size > _MOST_COPIED_BYTES:
            self._write_network(network, name)
        else:
            self._writing = Copy(lambda: self._write_network(network, name))

    def wait_for_network(self) -> None:
        """Wait until the network is written, where that was begun, or say that it is not."""
        if self._writing is None:
            return
        self._writing.wait()
        if not (self.folder / NETWORK_RESULT_FILE).is_file():
            from trtnorm_cli.tensorrt.network.answers import failed, made_by

            died = failed("the process that writes it died")
            save_in_one_step({**died, **made_by(self.backend), "seconds": 0.0}, self.folder / NETWORK_RESULT_FILE)

    def _write_network(self, network: Any, name: str) -> None:
        """Write the network as ONNX, or why that cannot be. Neither is anything to the build."""
        from trtnorm_cli.tensorrt.network.answers import failed, made_by, untranslatable
        from trtnorm_cli.tensorrt.network.parsing import write_network
        from trtnorm_cli.tensorrt.network.places import Places
        from trtnorm_cli.tensorrt.network.problems import UntranslatableLayer

        start = time.perf_counter()
        try:
            written = write_network(network, self.trt, self.folder / name, Places(self.folder / self.request.model))
            answer = {"ok": True, **written, "warnings": self.logger.warnings}
        except UntranslatableLayer as refusal:
            answer = untranslatable(refusal)
        except Exception as error:
            answer = failed(f"{type(error).__name__}: {error}")
        seconds = round(time.perf_counter() - start, 3)
        save_in_one_step({**answer, **made_by(self.backend), "seconds": seconds}, self.folder / NETWORK_RESULT_FILE)
        self.events.send(event="network")

    def _configure(self, network: Any) -> Any:
        config = self.builder.create_builder_config()
        config.progress_monitor = make_monitor(self.trt, self.events)
        self._apply_settings(config)
        for index, shapes in enumerate(self.request.profiles):
            profile = self.builder.create_optimization_profile()
            if missing := shape_ranges.without_elements(network, shapes):
                text = f"Optimization profile {index} is missing values for shape input tensor {', '.join(missing)}"
                raise Refused("profile", [TensorRTMessage(text)])
            self._set_shapes(profile, network, index)
            if config.add_optimization_profile(profile) < 0:
                raise Refused("profile", self._logged_errors(f"TensorRT does not accept optimization profile {index}"))
        return config

    def _apply_settings(self, config: Any) -> None:
        """Apply the builder settings. TensorRT logs an error and goes on where it does not support one."""
        settings = self.request.settings
        faults = faults_of(settings, self.backend.name, self.backend.capabilities, self.backend.targets)
        if faults:
            raise Refused("settings", [TensorRTMessage(f"{fault.message}: {fault.instead}") for fault in faults])
        already = len(self.logger.errors)
        try:
            apply_settings(config, settings, self.trt)
            if (cache := self._timing_cache()) is not None:
                timing_cache.attach(config, cache)
        except (ValueError, TypeError, RuntimeError, OSError) as error:
            raise Refused("settings", [TensorRTMessage(str(error))]) from error
        if errors := self.logger.errors[already:]:
            raise Refused("settings", [TensorRTMessage(text) for text in unique(errors)])

    def _timing_cache(self) -> Path | None:
        """The file of the timing cache, or None where none was asked for, or it has no effect."""
        path = self.request.settings.get("timing_cache")
        return Path(path) if path is not None and self.backend.can("timing cache") else None

    def _set_shapes(self, profile: Any, network: Any, index: int) -> None:
        """Give TensorRT's ``profile`` the shapes of the optimization profile ``index``."""
        for name, corners in self.request.profiles[index].items():
            try:
                shape_ranges.set_range(profile, network, name, corners)
            except (ValueError, TypeError, RuntimeError) as error:
                text = f"optimization profile {index}, input {name}: {error}"
                raise Refused("profile", [TensorRTMessage(text)]) from error

    def _build(self, network: Any, config: Any) -> Path:
        """The file with the engine."""
        path = Path(self.request.engine)
        if not path.parent.is_dir():  # a build repeated by hand: the place for the engine is gone
            path = self.folder / path.name
        try:
            is_built = write_engine(self.builder, network, config, self.backend, path)
        except OSError as error:
            raise Refused("write", [TensorRTMessage(error.strerror or str(error))]) from error
        if not is_built:
            raise Refused("build", self._logged_errors())
        if (cache := self._timing_cache()) is not None:
            timing_cache.store(config, cache)
        return path

    def _weight_errors(self) -> list[TensorRTMessage]:
        """The reasons why a weight could not be read, which the parser's own error does not give."""
        return [TensorRTMessage(text) for text in unique(self.logger.errors) if text.startswith("WeightsContext.cpp")]

    def _logged_errors(self, otherwise: str = "TensorRT gave no reason") -> list[TensorRTMessage]:
        texts = unique(message for message in self.logger.errors if not is_missing_driver_noise(message))
        return [TensorRTMessage(text) for text in texts] or [TensorRTMessage(otherwise)]

    def _require_all_profiles(self) -> None:
        """TensorRT goes on without an optimization profile that it does not like."""
        wanted = len(self.request.profiles)
        for binding in self.log.bindings:
            if wanted and len(binding.profiles) != wanted:
                text = f"the engine has {len(binding.profiles)} optimization profiles for {binding.name}, not {wanted}"
                raise Refused("build", [TensorRTMessage(text)])

    def _require_targets(self, engine: Path) -> CompiledFor | None:
        wanted, compiled = self.request.settings.get("targets"), compiled_for(engine)
        if wanted and compiled is not None and set(wanted) != set(compiled.targets):
            text = f"the engine was compiled for {', '.join(compiled.targets)}, not for {', '.join(wanted)}"
            raise Refused("build", [TensorRTMessage(text)])
        return compiled


def unique(messages: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(messages))


def work(folder: Path, events: Events) -> int:
    """Build what the request in ``folder`` asks for. Returns the exit code."""
    request = BuildRequest.load(folder)
    events.send(event="stage", stage="load")
    try:
        backend = load_backend(request.backend)
    except TrtnormError as error:
        parts = [error.summary, error.where, error.hint]
        text = "\n".join(part for part in parts if part)
        BuildResult(ok=False, stage="load", errors=(TensorRTMessage(text),)).save(folder)
        return 1
    with (folder / LOG_FILE).open("w", encoding="utf-8", buffering=1) as log:
        build = Build(folder, request, backend, events, log)
        try:
            try:
                result = build.run()
            finally:
                build.wait_for_network()
            result.save(folder)
        except Refused as refusal:
            BuildResult(
                ok=False,
                stage=refusal.stage,
                backend=backend.name,
                version=backend.version,
                errors=tuple(refusal.messages),
                warnings=(*backend.skipped, *unique(build.logger.warnings)),
                seconds=build.seconds,
            ).save(folder)
            return 1
    return 0


def work_or_say_why_not(folder: Path, events: Events) -> int:
    """The exit code of ``work``, or ``CANNOT_WRITE`` when the log or the result cannot be written."""
    try:
        return work(folder, events)
    except OSError as error:
        with suppress(OSError):  # its own error output is on the same disk
            print(f"{error.strerror}: {error.filename or folder}", file=sys.stderr, flush=True)
        return CANNOT_WRITE


def main() -> None:
    die_with_parent()
    # TensorRT keeps the path of the model. A path of another length moves what it allocates, and with that the bytes it writes.
    os.chdir(sys.argv[1])
    folder = Path()
    events = Events(int(sys.argv[2]) if len(sys.argv) > 2 else None)
    code = run_with_large_stack(lambda: work_or_say_why_not(folder, events))
    sys.stdout.flush()
    # TensorRT's objects are freed in an order of Python's choosing at exit; everything is on disk, so leave at once.
    os._exit(code)


if __name__ == "__main__":
    main()
