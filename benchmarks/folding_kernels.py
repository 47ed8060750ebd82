"""Kernels of the compiled engine without rewriting, with every change, and with ``optimize: kernels``.

    python benchmarks/folding_kernels.py MODEL.onnx=CFG.yaml [MODEL.onnx=CFG.yaml ...]

Prints a Markdown table. Needs tensorrt-rtx, no GPU.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from trtnorm_cli.child_process import Limits
from trtnorm_cli.rewrite.kernels import fewest_kernels
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare
from trtnorm_cli.tensorrt.build_request import request_for
from trtnorm_cli.tensorrt.manifest import Kernels
from trtnorm_cli.tensorrt.variants import VariantBuilder, cost_of


def row(model: Path, profile: Path) -> str:
    """One line of the table: launches, by type, and the size of the engine."""
    prepared = prepare(OpenedModel.of_file(model, profile))
    session = prepared.session()
    with tempfile.TemporaryDirectory() as folder:
        builder = VariantBuilder(
            Path(folder),
            request_for(prepared, "tensorrt-rtx", model.with_suffix(".engine")),
            lambda result, rewritten: None,
            Limits(600),
        )
        without, everything = (builder.built(session.rewrite(policy)).kernels for policy in ("never", "always"))
        chosen = fewest_kernels(session, lambda rewriting: cost_of(builder.built(rewriting).kernels))
        best = builder.built(chosen.rewriting).kernels
    cells = [model.stem, text(without), text(everything), text(best), f"{len(chosen.left_out)}", f"{chosen.builds}"]
    return f"| {' | '.join(cells)} |"


def text(kernels: Kernels) -> str:
    if kernels.reason:
        return f"does not build: {kernels.reason}"
    types = ", ".join(f"{number} {name}" for name, number in kernels.kernels_by_type.items())
    return f"{kernels.launches} ({types}), {kernels.engine_bytes / 2**20:.1f} MiB"


def main() -> None:
    print("| model | without rewriting | every change | `optimize: kernels` | sites left out | builds |")
    print("|---|---|---|---|---|---|")
    for argument in sys.argv[1:]:
        model, profile = argument.split("=")
        print(row(Path(model), Path(profile)), flush=True)


if __name__ == "__main__":
    main()
