"""Find, call and check the user's model. This runs the user's code, so only the export process imports it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trtnorm_cli.errors import ModelError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.suggest import did_you_mean, listing
from trtnorm_cli.target import Target, defined_names

_SHOWN_FRAMES = 6
# With the separator behind them: torchvision is not torch.
_OWN_FOLDER = f"{Path(__file__).resolve().parents[2]}{os.sep}"
_TORCH_FOLDER = f"{Path(torch.__file__).parent}{os.sep}"
_PYTHON_FOLDER = f"{Path(inspect.__file__).parent}{os.sep}"


@dataclass(frozen=True)
class Source:
    """A module with the arguments it came with, or a saved program. ``args`` is None when none came with it."""

    module: nn.Module
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] = field(default_factory=dict)
    program: torch.export.ExportedProgram | None = None


def load_source(spec: Target) -> Source:
    """The model that ``spec`` names.

    Raises ``ModelError`` when the code cannot be imported, raises, or gives something else than a model. The message holds the
    user's own part of the traceback.
    """
    if spec.kind == "program":
        return _saved_program(spec)
    with _reported(f"importing {spec.location} raised", spec):
        namespace = _import_file(spec.path) if spec.kind == "file" else _import_module(spec)
    return _as_source(_called(_attribute(namespace, spec), spec), spec)


class _reported:  # noqa: N801  (reads as a function)
    """Turn an exception of the user's code into a ``ModelError`` with the user's frames."""

    def __init__(self, what: str, spec: Target) -> None:
        self.what, self.spec = what, spec

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, ModelError | KeyboardInterrupt):
            return
        raise ModelError(f"{self.what} {type(error).__name__}: {error}", user_frames(error, self.spec.text)) from error


def user_frames(error: BaseException, title: str) -> str:
    """``title`` and the frames of ``error`` that are the user's, innermost last, each with its line of code."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{title}\n  {error.filename}:{error.lineno}: {(error.text or '').strip()}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_plumbing(frame.filename)]
    lines = [f"  {shown(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line or ''}".rstrip(": ") for frame in frames]
    return "\n".join([title, *lines[-_SHOWN_FRAMES:]])


def shown(filename: str) -> str:
    """A file's name for a message, relative where it lies below the current folder."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename


def is_plumbing(filename: str) -> bool:
    """True for files of trtnorm, PyTorch and Python itself, which are not where a user looks."""
    if filename.startswith(("<", _OWN_FOLDER, _TORCH_FOLDER)):
        return True
    return filename.startswith(_PYTHON_FOLDER) and "site-packages" not in filename


def _import_file(path: Path) -> Any:
    """The file as a module of its own name, its folder first on the import path as for a script."""
    absolute = path.absolute()  # not resolved: messages name the file as the user does
    sys.path.insert(0, str(absolute.parent))
    module_spec = importlib.util.spec_from_file_location(absolute.stem, absolute)
    assert module_spec is not None
    assert module_spec.loader is not None
    module = importlib.util.module_from_spec(module_spec)
    sys.modules.setdefault(absolute.stem, module)
    module_spec.loader.exec_module(module)
    return module


def _import_module(spec: Target) -> Any:
    try:
        return importlib.import_module(spec.location)
    except ModuleNotFoundError as error:
        if error.name and (spec.location + ".").startswith(error.name + "."):
            hint = "install it, or name the file: path/to/file.py:callable"
            raise ModelError(f"there is no Python module named {error.name}", spec.text, hint) from error
        raise


def _attribute(namespace: Any, spec: Target) -> Any:
    found = namespace
    for part in spec.attribute.split("."):
        if not hasattr(found, part):
            names = _candidates(namespace, spec)
            hint = f"it has {listing(names)}" if names else None
            raise ModelError(f"{spec.location} has no {spec.attribute}{did_you_mean(spec.attribute, names)}", spec.text, hint)
        found = getattr(found, part)
    return found


def _candidates(namespace: Any, spec: Target) -> list[str]:
    if spec.kind == "file":
        return defined_names(spec.path.read_text(encoding="utf-8", errors="replace"))
    return [name for name, value in vars(namespace).items() if callable(value) and not name.startswith("_")]


def _called(found: Any, spec: Target) -> Any:
    if isinstance(found, nn.Module | torch.export.ExportedProgram) or not callable(found):
        return found
    _require_no_arguments(found, spec)
    with _reported(f"{spec.attribute}() raised", spec):
        return found()


def _require_no_arguments(function: Callable[..., Any], spec: Target) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
    if needed:
        hint = "write a function without arguments that returns the module, and name that"
        raise ModelError(f"{spec.attribute} needs arguments: {', '.join(needed)}", spec.text, hint)


def _as_source(value: Any, spec: Target) -> Source:
    if isinstance(value, torch.export.ExportedProgram):
        return _program_source(value)
    if isinstance(value, nn.Module):
        return Source(value)
    if isinstance(value, tuple) and value and isinstance(value[0], nn.Module) and len(value) in (2, 3):
        args, kwargs = _arguments(value[1:], spec)
        return Source(value[0], args, kwargs)
    raise ModelError(
        f"{spec.attribute} gives {_described(value)}, not a module",
        spec.text,
        "return the torch.nn.Module, or (module, example_inputs) with a tensor, a tuple of arguments, or a dict of "
        "keyword arguments; or (module, args, kwargs)",
    )


def _arguments(given: tuple[Any, ...], spec: Target) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if len(given) == 2:
        args, kwargs = given
        if isinstance(args, tuple | list) and isinstance(kwargs, dict):
            return tuple(args), dict(kwargs)
        raise ModelError("(module, args, kwargs) needs a tuple and a dict", spec.text)
    (inputs,) = given
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    if isinstance(inputs, dict) and all(isinstance(key, str) for key in inputs):
        return (), dict(inputs)
    return (inputs,), {}


def _described(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
    return "None" if value is None else f"a {type(value).__name__}"


def _saved_program(spec: Target) -> Source:
    try:
        return _program_source(torch.export.load(spec.location))
    except Exception as error:  # torch.export.load raises whatever its readers raise
        text = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {text[0] if text else ''}"
        raise ModelError(
            f"the exported program cannot be read: {reason}", spec.text, "save it with torch.export.save of the same version"
        ) from error


def _program_source(program: torch.export.ExportedProgram) -> Source:
    args, kwargs = program.example_inputs or ((), {})
    return Source(program.module(), tuple(args), dict(kwargs), program)
