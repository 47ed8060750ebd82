"""Sizes and elements that each operator makes, in every form, held against what ONNX Runtime computes."""

from __future__ import annotations

import re

import pytest

from tests.shapes.operator_models import ALL, model_of
from tests.shapes.runs import IS_RECENT_RUNTIME, agree
from trtnorm_cli.shapes.propagate import propagate

POINTS = [{"N": n, "H": h, "W": w} for n, h, w in ((1, 8, 6), (2, 12, 7), (3, 7, 16), (2, 1, 5), (1, 3, 3))]
# ONNX Runtime before 1.24 fails where nothing is reduced, and refuses scales of some axes.
NOT_OLD = pytest.mark.skipif(not IS_RECENT_RUNTIME, reason="ONNX Runtime before 1.24 does not run it")
RECENT = ("nothing reduced", "other sizes of some axes")


@pytest.mark.parametrize("name", [pytest.param(name, marks=NOT_OLD if name in RECENT else ()) for name in ALL])
def test_sizes_and_elements_are_those_of_a_run(name):
    model = model_of(name)
    found = propagate(model)
    made = [output for node in model.graph.node for output in node.output if found.tensors[output].items is None]
    assert found.unread == []
    assert [output for output in made if found.tensors[output].size is None] == []
    sizes = [output for output in made if re.fullmatch(r"v\d+", output)]
    assert [one for one in sizes if found.tensors[one].elements is None or None in found.tensors[one].elements] == []
    assert any(agree(model, *POINTS))
