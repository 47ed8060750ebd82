"""Turn TensorRT's refusal into an error that names the node, TensorRT's own words, what they mean, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import onnx

from trtnorm_cli.errors import BuilderDied, TensorRTRefusal, TrtnormError, UsageProblem
from trtnorm_cli.onnx_model.parser_names import parser_name
from trtnorm_cli.onnx_model.walk import all_nodes
from trtnorm_cli.tensorrt.catalogue import CATALOGUE, INIT, ISOLATE, Entry, is_missing_driver_noise
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.plugin_request import refusal_of_plugins
from trtnorm_cli.tensorrt.plugins import STAGE as PLUGINS
from trtnorm_cli.tensorrt.request import LOG_FILE, BuildResult, TensorRTMessage

_STAGES = {
    "settings": "TensorRT does not accept the builder settings",
    "parse": "TensorRT does not accept the model",
    "profile": "TensorRT does not accept the optimization profiles",
    "build": "TensorRT cannot build an engine from the model",
}
_SHOWN = 5
_MEANS = "that means: "
UNKNOWN = "trtnorm does not know this message; the log has everything that TensorRT said"
_SAYS_NOTHING = re.compile(r"Invalid Node - |Failed to import initializer: ")
_SOURCE_PLACE = re.compile(r"ITensor::getDimensions: | In \S+ at /_src/[^\s)]+|^WeightsContext\.cpp:\d+: ")


def refusal(result: BuildResult, model: onnx.ModelProto, folder: Path, subject: Subject | None = None) -> TrtnormError:
    """The error to show for a build that ended with ``ok=False``.

    ``model`` is the model that TensorRT was given. ``folder`` is the work folder, which stays for whoever looks further.
    ``subject`` is the user's own model, which rewriting has changed.
    """
    if result.stage == "load":
        return UsageProblem("\n".join(message.text for message in result.errors))
    if result.stage == PLUGINS:
        return refusal_of_plugins(result, folder)
    if result.stage == "write":
        reason = "; ".join(message.text for message in result.errors)
        return BuilderDied(f"the engine cannot be written: {reason}", hint="make room there, or choose another folder with -o")
    messages, nodes = informative(result.errors), ParsedNodes(model)
    groups = _alike(messages, nodes)
    lines = [line for group in groups[:_SHOWN] for line in _lines(group, nodes, subject)]
    # A meaning that several messages share is said once.
    lines = [line for i, line in enumerate(lines) if not line.startswith(_MEANS) or line not in lines[:i]]
    if len(groups) > _SHOWN:
        lines.append(f"and {len(groups) - _SHOWN} more messages")
    lines.append(f"log: {folder / LOG_FILE}")
    error = TensorRTRefusal(_STAGES[result.stage], "\n".join(lines), _hint(messages, nodes, subject))
    error.nodes = tuple(name for message in messages if (name := nodes.of(message)[0]))
    return error


def _alike(messages: list[TensorRTMessage], nodes: ParsedNodes) -> list[list[TensorRTMessage]]:
    """The messages in groups that say the same of several nodes of one operator."""
    groups: dict[tuple[str, str], list[TensorRTMessage]] = {}
    for message in messages:
        groups.setdefault((words(message.text), nodes.of(message)[1]), []).append(message)
    return list(groups.values())


def explain(text: str, operator: str = "") -> Entry | None:
    """The catalogue's entry for what TensorRT says about a node of ``operator``, or None when it is not known."""
    return next((entry for entry in CATALOGUE if entry.fits(text, operator)), None)


def informative(messages: tuple[TensorRTMessage, ...]) -> list[TensorRTMessage]:
    """Each message once, known ones first, without those that only say that something is wrong while another says what."""
    different = list({(message.node, message.number, words(message.text)): message for message in messages}.values())
    telling = [message for message in different if not _SAYS_NOTHING.match(words(message.text))]
    return sorted(telling or different, key=lambda message: _rank(explain(message.text, message.operator)))


def _rank(entry: Entry | None) -> int:
    """Families that say much come first, then general ones, then what nobody knows."""
    return 2 if entry is None else int(entry.general)


def words(text: str) -> str:
    """TensorRT's own words in one line, without the noise of a missing driver and without places in its source code."""
    lines = [line for line in text.splitlines() if line.strip() and not is_missing_driver_noise(line)]
    telling = [line for line in lines if not _SAYS_NOTHING.match(line)] or lines
    return _SOURCE_PLACE.sub("", " ".join(" ".join(telling).split()))


class ParsedNodes:
    """The nodes of a ``model``, by the names that TensorRT has for them."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self._named = {parser_name(node): node for node in all_nodes(model) if node.output}

    def of(self, message: TensorRTMessage) -> tuple[str, str]:
        """Name and operator of the node that ``message`` is about, or empty when it names none.

        The parser names the node, or says which one it is when it has no name. The builder puts the layer's name into its text.
        That is the node's name, ``node_of_`` and its output when it has none, or either with an ending.
        """
        if message.node:
            known = self._named.get(message.node)
            return _name(known) if known else message.node, message.operator or (known.op_type if known else "")
        numbered = self.model.graph.node
        if 0 <= message.number < len(numbered) and numbered[message.number].op_type == message.operator:
            return _name(numbered[message.number]), message.operator
        # A pattern is made for names that occur at all: a graph has thousands of nodes, and a name may be megabytes long.
        occurring = [name for name in self._named if name in message.text]
        for ending in (r"(?![\w/])", r"_\w+"):
            mentioned = [name for name in occurring if re.search(rf"(?<![\w/.]){re.escape(name)}{ending}", message.text)]
            if mentioned:
                node = self._named[max(mentioned, key=len)]
                return _name(node), node.op_type
        return "", message.operator


def _name(node: onnx.NodeProto) -> str:
    return node.name or f"-> {node.output[0]}"


def _lines(group: list[TensorRTMessage], nodes: ParsedNodes, subject: Subject | None) -> list[str]:
    """A message of TensorRT about one node, or the same about several."""
    name, operator = nodes.of(group[0])
    entry = explain(group[0].text, operator)
    where = " ".join(part for part in ("node", name, f"({operator})" if operator else "") if part)
    origin = subject.origin(name, nodes.model) if subject is not None and name else ""
    where += f", {origin}" if origin else ""
    where += f", and {len(group) - 1} more of this operator" if len(group) > 1 else ""
    means = [f"{_MEANS}{entry.meaning}"] if entry else []
    return [*([where] if name or operator else []), f"TensorRT says: {_quoted(group[0].text)}", *means]


def _quoted(text: str) -> str:
    """TensorRT's own words, or that it gives no reason where they are ``false`` alone."""
    said = words(text)
    return "that it does not take the node, and no more (false)" if re.fullmatch(r"(Assertion failed: )?false", said) else said


def _hint(messages: list[TensorRTMessage], nodes: ParsedNodes, subject: Subject | None) -> str:
    """Advice about each known message, and the command to run next. General advice is left out where there is other."""
    found = [entry for message in messages if (entry := explain(message.text, nodes.of(message)[1])) is not None]
    entries = [entry for entry in found if not entry.general] or found
    advice = list(dict.fromkeys(entry.advice for entry in entries)) or [UNKNOWN]
    command = entries[0].command if entries else ISOLATE
    if command == INIT and subject is not None and subject.profile is not None:
        command = ISOLATE  # there is a profile, most likely from there
    return "\n".join([*advice, *([f"run: {subject.command(command)}"] if subject is not None else [])])
