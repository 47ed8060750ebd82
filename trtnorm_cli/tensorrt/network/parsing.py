"""Parse an ONNX file with TensorRT's own parser and write the network that came out of it as ONNX."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import onnx

from trtnorm_cli.tensorrt.logger import make_logger
from trtnorm_cli.tensorrt.network.places import Places
from trtnorm_cli.tensorrt.network.translate import Translation, translate_network
from trtnorm_cli.tensorrt.parser_errors import parser_errors
from trtnorm_cli.tensorrt.request import TensorRTMessage

#: A model file larger than this keeps its weights in a file beside it; protobuf ends at 2 GiB.
EXTERNAL_DATA_BYTES = 1_500_000_000


class ParserRefused(Exception):
    """TensorRT's parser did not make a network of the file. ``messages`` are its reasons."""

    def __init__(self, messages: list[TensorRTMessage]) -> None:
        super().__init__("; ".join(message.text for message in messages))
        self.messages = messages


def parse_and_translate(model_path: Path, out_path: Path, trt: Any, flags: int = 0) -> dict[str, Any]:
    """Parse ``model_path``, translate the network, and write it to ``out_path``. Returns what the caller reports.

    Beside the model the network refers to weights in its files, so nobody may write to these while it is needed.

    ``trt`` is TensorRT's module and ``flags`` are for ``create_network``. The result holds ``layers`` (type -> count),
    ``warnings`` of the parser, ``notes`` of the translation, ``external_data`` and ``seconds``. Raises ``UntranslatableLayer``,
    and ``ParserRefused`` also for an empty network, which the parser makes without an error of files that hold no graph.
    """
    started = time.monotonic()
    logger = make_logger(trt, _print)
    builder = trt.Builder(logger)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model_path)):
        raise ParserRefused(parser_errors(parser) or [TensorRTMessage(text) for text in logger.errors] or [_SILENT])
    if network.num_layers == 0 or network.num_outputs == 0:
        raise ParserRefused([_EMPTY])
    places = Places(model_path) if out_path.parent == model_path.parent else None
    written = write_network(network, trt, out_path, places)
    return {**written, "warnings": logger.warnings, "seconds": round(time.monotonic() - started, 3)}


def write_network(network: Any, trt: Any, out_path: Path, places: Places | None = None) -> dict[str, Any]:
    """Translate ``network`` and write it to ``out_path``. Returns ``layers``, ``notes`` and ``external_data``.

    Weights that stand in one of ``places`` are left there. Raises ``UntranslatableLayer``.
    """
    translation = translate_network(network, trt, places)
    external = save(translation, out_path)
    return {
        "layers": dict(Counter(translation.layer_types)),
        "notes": list(translation.notes),
        "external_data": external,
    }


_SILENT = TensorRTMessage("the parser refused the model and gave no reason")
_EMPTY = TensorRTMessage("the parser reported success but made an empty network: the file holds no graph that it can read")


def save(translation: Translation, path: Path) -> bool:
    """Write the model. Returns whether its weights went into ``<name>.data`` beside it."""
    data = path.with_name(path.name + ".data")
    data.unlink(missing_ok=True)  # onnx appends to a file that exists
    external = translation.weight_bytes > EXTERNAL_DATA_BYTES
    if external:
        onnx.save_model(translation.model, str(path), save_as_external_data=True, location=data.name)
    else:
        path.write_bytes(translation.model.SerializeToString())
    return external


def _print(severity: str, message: str) -> bool:
    """Print ``message``, unless it says that there is no GPU. That is said after any other error, and is never its cause."""
    if "catchCudaError" in message:
        return False
    print(f"[{severity}] {message}", file=sys.stderr)
    return True
