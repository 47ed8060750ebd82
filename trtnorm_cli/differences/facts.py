"""Facts about a model, a network or an engine as a whole, as text that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trtnorm_cli.differences.record import Difference
from trtnorm_cli.light_dataclass import dataclass

# The facts that several kinds of targets have.
MODEL = "model"
INTERFACE = "inputs and outputs"
NORMS = "normalizations"
LAYERS = "network layers"

_ONNX_WORDS = {
    "HALF": "float16", "BF16": "bfloat16", "FP8": "float8e4m3fn", "FP4": "float4e2m1", "E8M0": "float8e8m0",
}  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """One fact: what it is about, in text, and the kind of a difference in it."""

    kind: str
    what: str
    text: str


def differences(first: Iterable[Fact], second: Iterable[Fact]) -> list[Difference]:
    """The facts that are known of both and differ. Of two of one kind of target, one may have more: metadata, for one."""
    others = {(fact.kind, fact.what): fact.text for fact in second}
    return [
        Difference(fact.kind, fact.what, fact.text, other)
        for fact in first
        if (other := others.get((fact.kind, fact.what))) is not None and other != fact.text
    ]


def counts_text(counts: Mapping[str, int]) -> str:
    """``3 Add, 1 Conv``, by name."""
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "none"


def onnx_word(dtype: str) -> str:
    """ONNX's word for a type of TensorRT: ``float16`` for ``HALF``."""
    return _ONNX_WORDS.get(dtype, dtype.lower())
