"""The order in which a graph's nodes are evaluated, and when each tensor is no longer needed."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, NodeProto

from trtnorm_cli.evaluate.float64.errors import ReferenceUnavailable
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.stored import tensor_array


@dataclass
class Step:
    """One node: all tensors that it reads, also within its bodies, and those that nobody reads after it."""

    node: NodeProto
    reads: tuple[str, ...]
    attributes: Mapping[str, Any]
    done: tuple[str, ...] = ()
    cache: dict[str, Any] = field(default_factory=dict)


@dataclass
class Plan:
    """``steps`` in order; ``outputs`` are what is asked for; ``outer`` are names that the graph takes from outside."""

    graph: GraphProto
    steps: list[Step]
    outputs: tuple[str, ...]
    outer: tuple[str, ...]
    opsets: Mapping[str, int]


def plan(graph: GraphProto, outputs: Iterable[str], opsets: Mapping[str, int]) -> Plan:
    """Only what ``outputs`` need, in topological order; nodes that are ready at the same time keep the file's order."""
    outputs = tuple(outputs)
    reads = [_reads(node) for node in graph.node]
    producers = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    needed = _needed(outputs, reads, producers)
    order = _sorted(needed, reads, producers, graph)
    steps = [Step(graph.node[i], reads[i], attributes_of(graph.node[i], opsets)) for i in order]
    _mark_last_uses(steps, set(outputs))
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer} | set(producers)
    own |= {s.values.name for s in graph.sparse_initializer}
    read = {name for step in steps for name in step.reads} | set(outputs)
    return Plan(graph, steps, outputs, tuple(sorted(read - own)), opsets)


def _reads(node: NodeProto) -> tuple[str, ...]:
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs) if _has_body(attribute) else ():
            names += free_names(body)
    return tuple(dict.fromkeys(names))


def _has_body(attribute: AttributeProto) -> bool:
    return attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS)


def free_names(graph: GraphProto) -> list[str]:
    """Names that the graph reads from the graphs around it."""
    known = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    known |= {name for node in graph.node for name in node.output}
    used = [name for node in graph.node for name in _reads(node)] + [v.name for v in graph.output]
    return [name for name in dict.fromkeys(used) if name and name not in known]


def _needed(outputs: tuple[str, ...], reads: list[tuple[str, ...]], producers: Mapping[str, int]) -> set[int]:
    found: set[int] = set()
    pending = list(outputs)
    while pending:
        index = producers.get(pending.pop())
        if index is not None and index not in found:
            found.add(index)
            pending += reads[index]
    return found


def _sorted(needed: set[int], reads: list[tuple[str, ...]], producers: Mapping[str, int], graph: GraphProto) -> list[int]:
    waiting: dict[int, int] = {}
    consumers: dict[int, list[int]] = {i: [] for i in needed}
    for i in needed:
        sources = {producers[name] for name in reads[i] if name in producers}
        waiting[i] = len(sources)
        for source in sources:
            consumers[source].append(i)
    ready = sorted(i for i in needed if not waiting[i])
    order = []
    while ready:
        current = heapq.heappop(ready)
        order.append(current)
        for consumer in consumers[current]:
            waiting[consumer] -= 1
            if not waiting[consumer]:
                heapq.heappush(ready, consumer)
    if len(order) < len(needed):
        stuck = graph.node[min(needed - set(order))]
        raise ReferenceUnavailable("the graph has a cycle", where=node_name(stuck))
    return order


def _mark_last_uses(steps: list[Step], kept: set[str]) -> None:
    seen = set(kept)
    for step in reversed(steps):
        names = dict.fromkeys((*step.reads, *(name for name in step.node.output if name)))
        step.done = tuple(name for name in names if name not in seen)
        seen.update(names)


def imported_opsets(model: onnx.ModelProto) -> dict[str, int]:
    return {("" if opset.domain in DEFAULT_DOMAINS else opset.domain): opset.version for opset in model.opset_import}


def node_name(node: NodeProto) -> str:
    operator = node.op_type if node.domain in DEFAULT_DOMAINS else f"{node.domain}::{node.op_type}"
    return f"{operator} '{node.name or next(iter(node.output), '')}'"


def attributes_of(node: NodeProto, opsets: Mapping[str, int]) -> dict[str, Any]:
    """The node's attributes over the defaults of its operator's schema."""
    domain = "" if node.domain in DEFAULT_DOMAINS else node.domain
    values = dict(_defaults(node.op_type, domain, opsets.get(domain, 1)))
    values.update({attribute.name: _value(attribute) for attribute in node.attribute})
    return values


@cache
def _defaults(op_type: str, domain: str, version: int) -> tuple[tuple[str, Any], ...]:
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return ()
    defaults = ((name, attribute.default_value) for name, attribute in schema.attributes.items())
    return tuple((name, _value(value)) for name, value in defaults if value.type != AttributeProto.UNDEFINED)


def _value(attribute: AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, onnx.TensorProto):
        return tensor_array(value) if value.data_type else None
    if attribute.type == AttributeProto.STRINGS:
        return [item.decode("utf-8", "replace") for item in value]
    return np.array(value) if attribute.type == AttributeProto.FLOATS and not value else value
