"""Turn TensorRT's refusal into: which node, TensorRT's own words, what they mean, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import onnx

from trtnorm_cli.build.catalogue import CATALOGUE, Entry
from trtnorm_cli.build.request import LOG_FILE, BuildResult, TensorRTMessage
from trtnorm_cli.errors import TensorRTRefusal, TrtnormError, UsageProblem
from trtnorm_cli.onnx_model.walk import all_nodes

_STAGES = {
    "parse": "TensorRT does not accept the model",
    "profile": "TensorRT does not accept the optimization profiles",
    "build": "TensorRT cannot build an engine from the model",
}
_SHOWN = 5


def refusal(result: BuildResult, model: onnx.ModelProto, folder: Path) -> TrtnormError:
    """The error to show for a build that ended with ``ok=False``.

    ``model`` is the model that TensorRT was given; ``folder`` is the work folder, which stays for whoever looks further.
    """
    if result.stage == "load":
        return UsageProblem("\n".join(message.text for message in result.errors))
    messages = informative(result.errors)
    lines = [line for message in messages[:_SHOWN] for line in _lines(message, model)]
    if len(messages) > _SHOWN:
        lines.append(f"and {len(messages) - _SHOWN} more messages")
    lines.append(f"log: {folder / LOG_FILE}")
    return TensorRTRefusal(_STAGES[result.stage], "\n".join(lines), _hint(messages))


def explain(text: str) -> Entry | None:
    """The catalogue's entry for a message of TensorRT, or None when it is not known."""
    return next((entry for entry in CATALOGUE if re.search(entry.pattern, text)), None)


def informative(messages: tuple[TensorRTMessage, ...]) -> list[TensorRTMessage]:
    """The messages without those that only say that something is wrong while another one says what."""
    known = [message for message in messages if explain(message.text)]
    telling = [message for message in messages if not re.search(r"Invalid Node - ", message.text)]
    return known or telling or list(messages)


def node_of(message: TensorRTMessage, model: onnx.ModelProto) -> tuple[str, str]:
    """Name and operator of the node that ``message`` is about; empty when it names none.

    The parser names the node; the builder puts the layer's name, which is the node's, into its text.
    """
    nodes = {node.name: node.op_type for node in all_nodes(model) if node.name}
    if message.node:
        return message.node, message.operator or nodes.get(message.node, "")
    mentioned = [name for name in nodes if re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w/])", message.text)]
    name = max(mentioned, key=len, default="")
    return name, nodes.get(name, "")


def _lines(message: TensorRTMessage, model: onnx.ModelProto) -> list[str]:
    name, operator = node_of(message, model)
    words = " ".join(message.text.split())
    entry = explain(message.text)
    where = [f"node {name} ({operator})" if operator else f"node {name}"] if name else []
    means = [f"that means: {entry.meaning}"] if entry else []
    return [*where, f"TensorRT says: {words}", *means]


def _hint(messages: list[TensorRTMessage]) -> str:
    advice = dict.fromkeys(entry.advice for message in messages if (entry := explain(message.text)))
    return "\n".join(advice) or "trtnorm does not know this message; the log has everything that TensorRT said"
