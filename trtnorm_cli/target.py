"""What the user names as a PyTorch model: ``file.py:callable``, ``package.module:callable`` or ``program.pt2``."""

from __future__ import annotations

import ast
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from trtnorm_cli.errors import ModelError, UsageProblem
from trtnorm_cli.suggest import did_you_mean, listing

FORMS = "path/to/file.py:callable, package.module:callable, or a saved program.pt2"
_PROGRAM_SUFFIX = ".pt2"
_NAME = r"[A-Za-z_]\w*"
_DOTTED = re.compile(rf"{_NAME}(\.{_NAME})*")
_MODEL_SUFFIXES = (".onnx", ".engine", ".plan", ".trt")
_OTHER_PREFIXES = ("network",)


@dataclass(frozen=True)
class ModelSpec:
    """``kind`` is ``file``, ``module`` or ``program``; ``target`` a path or a dotted name; ``attribute`` what to call in it."""

    text: str
    kind: str
    target: str
    attribute: str = ""

    @property
    def stem(self) -> str:
        """What files made from the model are called."""
        return self.attribute.rpartition(".")[2] if self.attribute else Path(self.target).stem


def is_model_spec(text: str) -> bool:
    """True for what names a PyTorch model rather than a file of another kind. Looks at the text alone."""
    if text.endswith((_PROGRAM_SUFFIX, ".py")):
        return True
    target, colon, attribute = text.rpartition(":")
    if not colon or target in _OTHER_PREFIXES or attribute.endswith(_MODEL_SUFFIXES):
        return False
    return target.endswith(".py") or (_is_dotted(target) and _is_dotted(attribute))


def parse_model_spec(text: str) -> ModelSpec:
    """Read a SPEC; raises ``UsageProblem`` when it has another form and ``ModelError`` when its file is missing."""
    if text.endswith(_PROGRAM_SUFFIX):
        return ModelSpec(text, "program", _existing(text))
    target, _, attribute = text.rpartition(":")
    if text.endswith(".py"):
        raise UsageProblem("this does not say which model of the file", text, _callables_hint(_existing(text)))
    if target.endswith(".py"):
        return ModelSpec(text, "file", _existing(target), _identifier(attribute, text))
    if _is_dotted(target):
        return ModelSpec(text, "module", target, _identifier(attribute, text))
    raise UsageProblem("this is not the name of a PyTorch model", text, f"write {FORMS}")


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
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    names += [target.id for target in targets if isinstance(target, ast.Name)]
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


# TensorRT's serialized engines begin with a letter for the product and this.
_MAGIC = b"trt"


_SUFFIXES = (".engine", ".plan", ".trt")


def looks_like_engine(path: Path) -> bool:
    """True for a file that is called ``*.engine``, ``*.plan`` or ``*.trt``, or starts as TensorRT's engines do."""
    return path.suffix in _SUFFIXES or (path.is_file() and _first_bytes(path)[1:] == _MAGIC)


def _first_bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(1 + len(_MAGIC))


def stem_of(text: str) -> str:
    """What files made from the model are called."""
    return parse_model_spec(text).stem if is_model_spec(text) else Path(text).stem


NETWORK_PREFIX = "network:"


@dataclass(frozen=True)
class Spec:
    """A participant as the user names it: ``model.onnx``, ``network:model.onnx``, ``model.engine`` or a PyTorch model.

    ``text`` is the name of a PyTorch model, which need not be a file.
    """

    kind: str
    path: Path
    text: str = ""

    @property
    def label(self) -> str:
        if self.kind == "module":
            return self.text
        return f"{NETWORK_PREFIX}{self.path}" if self.kind == "network" else str(self.path)


def parse_spec(text: str) -> Spec:
    """Read what the user wrote; raises ``UsageProblem`` for an unknown prefix."""
    if text.startswith(NETWORK_PREFIX):
        return Spec("network", Path(text.removeprefix(NETWORK_PREFIX)))
    path = Path(text)
    if is_model_spec(text):
        return Spec("module", Path(stem_of(text)), text)
    return Spec("engine" if looks_like_engine(path) else "onnx", path)
