"""The request of the parent to the build process, and the result. Both are written as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from trtnorm_cli.child_process import REQUEST_FILE, RESULT_FILE
from trtnorm_cli.files import save_in_one_step
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record
from trtnorm_cli.records.engine_parts import Binding, CompiledLayer, NetworkLayer, NetworkTensor

LOG_FILE = "build.log"
# The network as ONNX, and what became of it.
NETWORK_FILE = "network.onnx"
NETWORK_RESULT_FILE = "network.json"
# The exit code of a build process that could not write its own files.
CANNOT_WRITE = 74
# A request has a length that its paths hardly change: what the child reads moves what TensorRT allocates after it.
_PADDED_TO = 4096
STDERR_FILE = "worker-stderr.log"

ShapeTriple = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class BuildRequest:
    """One engine to build.

    ``model`` is relative to the work folder. ``engine`` is where the child writes the finished bytes (a temporary name).
    ``profiles`` maps input name to (min, opt, max) for each optimization profile. ``settings`` are builder settings.
    ``plugins`` are libraries to load, ``plugin_nodes`` the nodes of the model that want a plugin (``PluginNode``). With
    ``network`` the parsed network is written as ONNX to that file beside the model, before anything is built. With
    ``parse_only`` there will be no engine, only what the parser says.
    """

    model: str
    engine: str
    backend: str | None = None
    profiles: tuple[dict[str, ShapeTriple], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    plugins: tuple[str, ...] = ()
    plugin_nodes: tuple[dict[str, Any], ...] = ()
    parse_only: bool = False
    network: str | None = None

    def save(self, folder: Path) -> Path:
        path = folder / REQUEST_FILE
        text = json.dumps(asdict(self), indent=2) + "\n"
        path.write_text(text.ljust(-(-len(text) // _PADDED_TO) * _PADDED_TO), encoding="utf-8")
        return path

    @staticmethod
    def load(folder: Path) -> BuildRequest:
        return BuildRequest(**json.loads((folder / REQUEST_FILE).read_text(encoding="utf-8")))


@dataclass(frozen=True)
class TensorRTMessage:
    """One error of TensorRT. ``node`` and ``operator`` are empty where TensorRT does not name them.

    ``number`` is the node's place in its graph, or -1.
    """

    text: str
    node: str = ""
    operator: str = ""
    code: str = ""
    number: int = -1


@dataclass(frozen=True)
class BuildResult(Record):
    """The child's findings.

    ``stage`` is the last stage it reached, one of load, parse, settings, profile, build, write and done.

    ``bindings`` are the compiled engine's inputs and outputs, ``targets`` the compute capabilities that it was compiled for
    (both as far as TensorRT tells them), and ``newer_too`` says whether it also loads on later ones. ``devices`` are the GPUs
    of the machine.
    """

    ok: bool
    stage: str
    backend: str = ""
    version: str = ""
    errors: tuple[TensorRTMessage, ...] = ()
    warnings: tuple[str, ...] = ()
    inputs: tuple[NetworkTensor, ...] = ()
    outputs: tuple[NetworkTensor, ...] = ()
    layers: tuple[NetworkLayer, ...] = ()
    kernels: tuple[CompiledLayer, ...] = ()
    bindings: tuple[Binding, ...] = ()
    targets: tuple[str, ...] = ()
    newer_too: bool = False
    devices: tuple[str, ...] = ()
    engine_bytes: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write the result under its final name in one step, so that a reader never sees half of it."""
        save_in_one_step(self.to_json(), folder / RESULT_FILE)
