"""The ONNX opset that a backend takes best."""

from __future__ import annotations

from importlib import metadata

from trtnorm_cli.tensorrt.backend import installed, spec_named

# GroupNormalization-21 becomes one NORMALIZATION layer; 20 writes it as InstanceNormalization between reshapes. Opset 23 writes
# RotaryEmbedding and Attention in forms that TensorRT and ONNX Runtime refuse.
_BEST = 21
# TensorRT's parser reads GroupNormalization-21 from this version on.
_OLDER, _READS_21 = 20, (10, 9)


def default_opset(backend: str | None) -> int:
    """The opset to export with for ``backend``, or for the TensorRT that would be taken."""
    spec = spec_named(backend) if backend is not None else next(iter(installed()), None)
    if spec is not None and spec.name == "tensorrt" and _version("tensorrt") < _READS_21:
        return _OLDER
    return _BEST


def _version(distribution: str) -> tuple[int, ...]:
    try:
        parts = metadata.version(distribution).split(".")[:2]
    except metadata.PackageNotFoundError:
        return _READS_21
    return tuple(int(part) for part in parts if part.isdigit())
