"""Positions at which a GridSample reads: what makes them of constants stays as it is written.

Pixel 63 of 64 is at 63 · 2 / 63 - 1. With 2 / 63 as one number it is 2e-6 of a pixel off, which shows where an image has edges.
TensorRT has all of it in one kernel either way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

if TYPE_CHECKING:
    from trtnorm_cli.rewrite.rule import Node

_ON_THE_WAY = frozenset({
    "Add", "Cast", "Clip", "Concat", "Div", "Gather", "Identity", "Mul", "Reshape", "Slice", "Split", "Squeeze", "Sub",
    "Transpose", "Unsqueeze",
})  # fmt: skip
_MOST_NODES = 32


def makes_positions(node: Node) -> bool:
    """True where arithmetic and what only moves lead from ``node`` to the positions of a GridSample."""
    waiting, seen = [node], {id(node)}
    for one in waiting:
        for tensor in one.outputs:
            for reader in tensor.outputs:
                is_sampled = reader.op == "GridSample" and len(reader.inputs) > 1 and reader.inputs[1] is tensor
                if is_sampled and reader.domain in DEFAULT_DOMAINS:
                    return True
                if reader.op in _ON_THE_WAY and id(reader) not in seen and len(seen) < _MOST_NODES:
                    seen.add(id(reader))
                    waiting.append(reader)
    return False
