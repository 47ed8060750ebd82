"""The messages of TensorRT's ONNX parser."""

from __future__ import annotations

from typing import Any

from trtnorm_cli.tensorrt.request import TensorRTMessage


def parser_errors(parser: Any, in_hand: tuple[str, str] = ("", "")) -> list[TensorRTMessage]:
    """The errors that the ``trt.OnnxParser`` keeps.

    ``in_hand`` is the name and operator of the node that it was importing. An error without a node, from the code for that
    operator, is about that node.
    """
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    found = []
    for e in errors:
        name, operator = e.node_name(), e.node_operator()
        if not name and not operator and in_hand[1] and e.func() == f"import{in_hand[1]}":
            name, operator = in_hand
        found.append(TensorRTMessage(e.desc(), name, operator, e.code().name, e.node()))
    return found
