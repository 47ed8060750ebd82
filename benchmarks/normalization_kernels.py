"""Normalizations found in modules of well-known networks, and the kernels of their engines with and without the rules.

    python -m benchmarks.normalization_kernels [NAME …]

Prints the Markdown table of docs/normalization_kernels.md. Both PyTorch exporters export every module at several opsets; it is
rewritten, built, and compared with the original. Needs PyTorch and tensorrt-rtx, no GPU.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
import yaml

from benchmarks.normalization_modules import EXAMPLES, Example
from trtnorm_cli import Manifest, TrtnormError, build

EXPORTS = (("dynamo", 18), ("dynamo", 20), ("dynamo", 21), ("torchscript", 11), ("torchscript", 17), ("torchscript", 20))
_KIND_OF = {
    "InstanceNormalization": "InstanceNorm",
    "GroupNormalization": "GroupNorm",
    "LayerNormalization": "LayerNorm",
    "RMSNormalization": "RMSNorm",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one export. ``kernels`` are those without rewriting and with it; ``problem`` is set where it failed."""

    nodes: dict[str, int]
    pieces: dict[str, int]
    kernels: tuple[int, int]
    rules: dict[str, int]
    compared: bool
    problem: str = ""

    @property
    def norms(self) -> dict[str, int]:
        """The normalizations by kind, one node or in pieces."""
        found = Counter(self.pieces)
        for operator, number in self.nodes.items():
            found[_KIND_OF.get(operator, operator)] += number
        return dict(found)


def export(example: Example, exporter: str, opset: int, path: Path) -> None:
    """Write the module as ONNX; both exporters talk, which nobody wants here."""
    torch.manual_seed(0)
    module, data = example.make().eval(), torch.randn(example.shape)
    names = {"input_names": ["x"], "output_names": ["y"], "opset_version": opset}
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        if exporter == "torchscript":
            axes = {"x": example.dynamic} if example.dynamic else None
            torch.onnx.export(module, (data,), str(path), dynamo=False, dynamic_axes=axes, **names)
        else:
            shapes = (dict.fromkeys(example.dynamic, torch.export.Dim.DYNAMIC),) if example.dynamic else None
            torch.onnx.export(module, (data,), str(path), dynamo=True, dynamic_shapes=shapes, external_data=False, **names)


def outcome(example: Example, exporter: str, opset: int) -> Outcome:
    """Export, rewrite, build with and without the rules, and compare, as ``trtnorm build`` does."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            export(example, exporter, opset, folder / "m.onnx")
        except Exception as error:  # an exporter fails with whatever its passes raise
            return Outcome({}, {}, (0, 0), {}, False, f"not exported: {type(error).__name__}")
        shapes = {"min": list(example.shape), "opt": list(example.shape), "max": _largest(example)}
        profile = {"optimization_profiles": [{"inputs": {"x": shapes}}]}
        (folder / "cfg.yaml").write_text(yaml.safe_dump(profile if example.dynamic else {}))
        try:
            manifest = build(folder / "m.onnx", folder / "m.engine", profile=folder / "cfg.yaml")
        except TrtnormError as error:
            return Outcome({}, {}, (0, 0), {}, False, f"exit code {error.exit_code}: {error.summary[-200:]}")
        return _read(manifest)


def _largest(example: Example) -> list[int]:
    return [size * 2 if axis in example.dynamic else size for axis, size in enumerate(example.shape)]


def _read(manifest: Manifest) -> Outcome:
    after, before = manifest.network.launches, manifest.optimize.before
    assert manifest.comparison is not None
    return Outcome(
        nodes=manifest.normalizations.nodes,
        pieces=manifest.normalizations.pieces,
        kernels=(after if before is None else before.launches, after),
        rules=dict(Counter(change.rule for change in manifest.changes).most_common()),
        compared=all(candidate["passed"] for candidate in manifest.comparison["candidates"]),
    )


def row(name: str, example: Example, exporter: str, opset: int) -> str:
    found = outcome(example, exporter, opset)
    wanted = _text(example.norms)
    cells = [name, f"{exporter} {opset}", wanted]
    if found.problem:
        return f"| {' | '.join([*cells, found.problem, '', '', ''])} |"
    written = _text({**found.nodes, **{f"{kind} in pieces": number for kind, number in found.pieces.items()}})
    cells[2] += "" if found.norms == example.norms else f", **found {_text(found.norms)}**"
    kernels = f"{found.kernels[0]} → {found.kernels[1]}"
    return f"| {' | '.join([*cells, written, _text(found.rules) or '–', kernels, 'equal' if found.compared else 'differs'])} |"


def _text(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def main() -> None:
    names = sys.argv[1:] or list(EXAMPLES)
    print("| network | export | normalizations | written as | rules | kernels | TensorRT network |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        for exporter, opset in EXPORTS:
            print(row(name, EXAMPLES[name], exporter, opset), flush=True)


if __name__ == "__main__":
    main()
