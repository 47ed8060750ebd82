"""How long tensors are alive, where that is not seen at the nodes of the graph alone."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from trtnorm_cli.profile.memory import MOST_BYTES, MemoryEstimate, estimate_memory, memory_problem
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.shapes.propagate import propagate

FLOAT, BYTES = onnx.TensorProto.FLOAT, 4 * 4


def test_a_tensor_that_a_branch_hands_on_is_alive_until_then() -> None:
    """The branch has no node that reads it: it is only an output."""
    branches = [
        helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, FLOAT, [4])])
        for name, output, nodes in (("then", "a", []), ("else", "d", [helper.make_node("Neg", ["c"], ["d"])]))
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Exp", ["x"], ["b"]),
        helper.make_node("Neg", ["b"], ["c"]),
        helper.make_node("If", ["t"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, [4]), helper.make_tensor_value_info("t", onnx.TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", FLOAT, [4])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    estimate = estimate_memory(model, propagate(model), "default", {})
    assert estimate.activations == 4 * BYTES + 1  # x, a, b and c at the node that makes c, and t


@pytest.mark.parametrize("limit", [None, 1 << 20])
@pytest.mark.parametrize("beyond", [0, 1])
def test_as_much_memory_as_is_allowed_is_no_problem(limit, beyond) -> None:
    most = limit or MOST_BYTES
    profile = BuildProfile.model_validate({} if limit is None else {"max_memory": "1MiB"})
    estimate = MemoryEstimate("default", most // 2, most - most // 2 + beyond, "n", "t", 1)
    problem = memory_problem(estimate, profile, 0)
    assert (problem is None) == (beyond == 0)
    if problem is not None:
        assert problem.path == (("dims",) if limit is None else ("max_memory",))
        assert f"max_memory: {-(-(most + beyond) // (1 << 30))}GiB" in str(problem.hint)
