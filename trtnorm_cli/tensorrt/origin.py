"""The nodes of the user's model that a node that TensorRT names was made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.walk import all_nodes
from trtnorm_cli.rewrite.rule import Change


@dataclass(frozen=True)
class Subject:
    """The model that the user gave, for messages, with its file, the build profile's, and how rewriting changed it."""

    model: Path
    profile: Path | None = None
    source: onnx.ModelProto = field(default_factory=onnx.ModelProto)
    changes: Sequence[Change] = ()

    def command(self, template: str) -> str:
        """``template`` with the model and the option that names the profile filled in."""
        import shlex

        profile = f" -p {shlex.quote(str(self.profile))}" if self.profile is not None else ""
        return template.replace("{model}", shlex.quote(str(self.model))).replace("{profile}", profile)

    def origin(self, name: str, rewritten: onnx.ModelProto) -> str:
        """The origin of the node ``name`` of the rewritten model, in words. It is empty where it is the user's own node."""
        own = _named(all_nodes(self.source))
        made = [change for change in self.changes if name in change.added]
        if made:
            removed = _through(made[-1].removed, self.changes, own)
            return f"made by {made[-1].rule} from {_listed(removed, own)}" if removed != [name] else ""
        if name in own or not own:
            return ""
        return _by_output(name, rewritten, self.source)


def _through(names: Iterable[str], changes: Sequence[Change], own: Mapping[str, onnx.NodeProto]) -> list[str]:
    """``names`` with every node that another change made replaced by what that change removed."""
    found: dict[str, None] = {}
    todo, seen = list(names), set()
    while todo:
        name = todo.pop(0)
        if name in seen:
            continue
        seen.add(name)
        maker = next((change for change in reversed(changes) if name in change.added and name not in change.removed), None)
        if name in own or maker is None:
            found[name] = None
        else:
            todo = [*maker.removed, *todo]
    return list(found)


def _by_output(name: str, rewritten: onnx.ModelProto, source: onnx.ModelProto) -> str:
    """The origin by the node's outputs. These keep their names when cleaning names a node or inlines a function."""
    node = next((node for node in all_nodes(rewritten) if _name(node) == name), None)
    outputs = set() if node is None else {output for output in node.output if output}
    producer = next((node for node in all_nodes(source) if not outputs.isdisjoint(node.output)), None)
    return "" if producer is None else f"in the model: {_name(producer)} ({producer.op_type})"


def _named(nodes: Iterable[onnx.NodeProto]) -> dict[str, onnx.NodeProto]:
    return {_name(node): node for node in nodes if node.output}


def _name(node: onnx.NodeProto) -> str:
    return node.name or f"-> {node.output[0]}"


def _listed(names: Sequence[str], own: Mapping[str, onnx.NodeProto]) -> str:
    return ", ".join(f"{name} ({own[name].op_type})" if name in own else name for name in names)
