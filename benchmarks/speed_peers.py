"""One model through one of the tools that are measured beside trtnorm: ``python speed_peers.py TOOL IN.onnx OUT.onnx``.

Runs in an environment of its own, which has the packages of ``PACKAGES`` and nothing of trtnorm. Each tool does what its
manual shows first, and keeps dynamic sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

PACKAGES = (
    "onnx==1.23.2", "onnxslim==0.1.98", "onnxsim==0.8.1", "onnxscript==0.7.2", "onnx-ir==1.1.0", "onnxruntime==1.31.1",
    "polygraphy==0.53.6", "onnx-graphsurgeon==0.6.1", "matplotlib",
)  # fmt: skip
# Above this a file of ONNX has its weights beside it.
LARGE = 1_900_000_000


def with_onnxslim(source: Path, target: Path) -> None:
    import onnxslim

    large = weight(source) > LARGE
    onnxslim.slim(str(source), str(target), save_as_external_data=large)


def with_onnxsim(source: Path, target: Path) -> None:
    from onnxsim.onnx_simplifier import main

    large = ["--save-as-external-data"] if weight(source) > LARGE else []
    sys.argv = ["onnxsim", str(source), str(target), *large]
    main()


def with_onnxscript(source: Path, target: Path) -> None:
    import onnx_ir
    from onnxscript import optimizer, rewriter

    model = onnx_ir.load(source)
    optimizer.optimize(model)
    model = rewriter.rewrite(model)
    onnx_ir.save(model, target, external_data=target.name + ".data" if weight(source) > LARGE else None)


def with_polygraphy(source: Path, target: Path) -> None:
    from polygraphy.tools import main

    large = ["--save-external-data"] if weight(source) > LARGE else []
    sys.argv = ["polygraphy", "surgeon", "sanitize", str(source), "--fold-constants", "-o", str(target), *large]
    main()


def with_onnxruntime(source: Path, target: Path) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    if weight(source) > LARGE:
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", target.name + ".data")
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])


def weight(source: Path) -> int:
    """Bytes of a model and of what stands beside it."""
    return sum(path.stat().st_size for path in source.parent.glob(source.name + "*"))


TOOLS: dict[str, Callable[[Path, Path], None]] = {
    "OnnxSlim": with_onnxslim,
    "onnxsim": with_onnxsim,
    "onnxscript": with_onnxscript,
    "Polygraphy": with_polygraphy,
    "ONNX Runtime": with_onnxruntime,
}

if __name__ == "__main__":
    TOOLS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
