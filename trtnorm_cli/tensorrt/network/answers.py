"""Answers of a child process that was to write a network as ONNX."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trtnorm_cli.tensorrt.backend import Backend
from trtnorm_cli.tensorrt.network.problems import UntranslatableLayer
from trtnorm_cli.tensorrt.request import TensorRTMessage


def made_by(backend: Backend) -> dict[str, str]:
    """The TensorRT that parsed the model."""
    return {"backend": backend.name, "version": backend.version}


def refused(messages: list[TensorRTMessage]) -> dict[str, Any]:
    """The parser did not take the model."""
    return _failure("refused", [asdict(message) for message in messages])


def untranslatable(refusal: UntranslatableLayer) -> dict[str, Any]:
    """Layers of the network cannot be written as ONNX."""
    layers = [refusal, *refusal.others]
    return _failure("untranslatable", [{"layer": r.layer, "type": r.type, "reason": r.reason} for r in layers])


def unusable(summary: str, where: str | None, hint: str | None) -> dict[str, Any]:
    """There is no such TensorRT."""
    return _failure("usage", [{"summary": summary, "where": where, "hint": hint}])


def failed(reason: str) -> dict[str, Any]:
    """The translation itself went wrong."""
    return _failure("failed", [{"reason": reason}])


def _failure(kind: str, errors: list[dict[str, Any]]) -> dict[str, Any]:
    return {"ok": False, "kind": kind, "errors": errors}
