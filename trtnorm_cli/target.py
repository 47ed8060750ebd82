"""The models that a user names: ONNX files, TensorRT's networks of them, engines, manifests, and PyTorch models."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import Literal

from trtnorm_cli.errors import ModelError, UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.suggest import did_you_mean, listing

FORMS = "path/to/file.py:callable, package.module:callable, or a saved program.pt2"
NETWORK_PREFIX = "network:"
_PROGRAM_SUFFIX = ".pt2"
_NAME = r"[A-Za-z_]\w*"
_DOTTED = re.compile(rf"{_NAME}(\.{_NAME})*")
_ENGINE_SUFFIXES = (".engine", ".plan", ".trt")
MANIFEST_SUFFIX = ".json"
_MODEL_SUFFIXES = (".onnx", *_ENGINE_SUFFIXES, MANIFEST_SUFFIX)
_OTHER_PREFIXES = (NETWORK_PREFIX.removesuffix(":"),)
# TensorRT's serialized engines begin with a letter for the product and this.
_MAGIC = b"trt"

Kind = Literal["onnx", "network", "engine", "manifest", "file", "module", "program"]


@dataclass(frozen=True)
class Target:
    """A model as the user names it.

    ``kind`` is ``onnx``, ``network`` (TensorRT's network of an ONNX file), ``engine`` or ``manifest`` (the JSON beside an
    engine or an export), or one of three forms of a PyTorch model: a callable in a ``file``, a callable in an importable
    ``module``, or a saved ``program``. ``location`` is a path, or the dotted name of a module. ``attribute`` is the callable in
    it.
    """

    kind: Kind
    location: str
    attribute: str = ""

    @property
    def is_pytorch(self) -> bool:
        return self.kind in ("file", "module", "program")

    @property
    def path(self) -> Path:
        return Path(self.location)

    @property
    def text(self) -> str:
        """The target as it is written on the command line."""
        if self.attribute:
            return f"{self.location}:{self.attribute}"
        return f"{NETWORK_PREFIX}{self.location}" if self.kind == "network" else self.location

    @property
    def stem(self) -> str:
        """The file name, without suffix, of everything that is made from this model."""
        return self.attribute.rpartition(".")[2] if self.attribute else self.path.stem


def parse_target(text: str) -> Target:
    """Read the name of any model. Raises as ``parse_pytorch`` does for that of a PyTorch model."""
    if text.startswith(NETWORK_PREFIX):
        return Target("network", str(Path(text.removeprefix(NETWORK_PREFIX))))
    return parse_pytorch(text) if is_pytorch(text) else file_target(Path(text))


def parse_model(text: str) -> Target:
    """Read the name of a model to rewrite or build. What names no PyTorch model is an ONNX file, whatever it is called."""
    return parse_pytorch(text) if is_pytorch(text) else Target("onnx", str(Path(text)))


def file_target(path: Path) -> Target:
    """A manifest or an engine, if ``path`` looks like one, or else an ONNX file."""
    if path.suffix == MANIFEST_SUFFIX:
        return Target("manifest", str(path))
    return Target("engine" if looks_like_engine(path) else "onnx", str(path))


def is_pytorch(text: str) -> bool:
    """True for the name of a PyTorch model rather than of a file of another kind. Looks at the text alone."""
    if text.endswith((_PROGRAM_SUFFIX, ".py")):
        return True
    location, colon, attribute = text.rpartition(":")
    if not colon or location in _OTHER_PREFIXES or attribute.endswith(_MODEL_SUFFIXES):
        return False
    return location.endswith(".py") or (_is_dotted(location) and _is_dotted(attribute))


def parse_pytorch(text: str) -> Target:
    """Read the name of a PyTorch model.

    Raises ``UsageProblem`` when it has another form and ``ModelError`` when its file is missing.
    """
    if text.endswith(_PROGRAM_SUFFIX):
        return Target("program", _existing(text))
    location, _, attribute = text.rpartition(":")
    if text.endswith(".py"):
        raise UsageProblem("this does not say which model of the file", text, _callables_hint(_existing(text)))
    if location.endswith(".py"):
        return Target("file", _existing(location), _identifier(attribute, text))
    if _is_dotted(location):
        return Target("module", location, _identifier(attribute, text))
    raise UsageProblem("this is not the name of a PyTorch model", text, f"write {FORMS}")


def looks_like_engine(path: Path) -> bool:
    """True for a file that is called ``*.engine``, ``*.plan`` or ``*.trt``, or starts as TensorRT's engines do."""
    return path.suffix in _ENGINE_SUFFIXES or _first_bytes(path)[1:] == _MAGIC


def _first_bytes(path: Path) -> bytes:
    """The beginning of a regular file. It is empty for one that cannot be read, whose reader will say why."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as stream:
            return stream.read(1 + len(_MAGIC))
    except OSError:
        return b""


def require_torch() -> None:
    """Raise ``UsageProblem`` with the command to install PyTorch when it is not installed. Imports nothing."""
    if importlib.util.find_spec("torch") is None:
        raise UsageProblem("PyTorch is not installed, and exporting a model needs it", hint="pip install 'trtnorm[torch]'")


def defined_names(source: str) -> list[str]:
    """The functions, classes and variables that a Python file defines at its top level, without running it."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return []
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assigned = [name for node in body if isinstance(node, ast.Assign) for name in node.targets]
    names += [name.id for name in assigned if isinstance(name, ast.Name)]
    return [name for name in dict.fromkeys(names) if not name.startswith("_")]


def _is_dotted(text: str) -> bool:
    return _DOTTED.fullmatch(text) is not None


def _identifier(attribute: str, text: str) -> str:
    if not _is_dotted(attribute):
        raise UsageProblem(f"{attribute!r} is no name of a callable", text, f"write {FORMS}")
    return attribute


def _existing(path: str) -> str:
    if Path(path).is_file():
        return path
    folder = Path(path).parent
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    raise ModelError(f"there is no such file{did_you_mean(Path(path).name, names)}", path, "check the path of the model")


def _callables_hint(path: str) -> str:
    names = defined_names(Path(path).read_text(encoding="utf-8", errors="replace"))
    return f"write {path}:NAME with NAME one of {listing(names)}" if names else f"write {FORMS}"
