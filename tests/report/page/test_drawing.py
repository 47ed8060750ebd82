"""Drawings of regions."""

from __future__ import annotations

import random

import pytest

from trtnorm_cli.report.page.drawing import Drawings, shortened
from trtnorm_cli.rewrite.region import RegionNode

pytestmark = pytest.mark.report


def fold(name: str) -> list[RegionNode]:
    conv = RegionNode(f"{name}/conv", "Conv", ("x", "w", "b"), ("c",))
    return [conv, RegionNode(f"{name}/bn", "BatchNormalization", ("c", "scale", "bias", "mean", "var"), ("y",))]


CONSTANTS = dict.fromkeys(("w", "b", "scale", "bias", "mean", "var"), "float32 [8]")


def test_boxes_stand_in_the_order_of_the_data():
    drawing = Drawings().of(fold("a"), CONSTANTS, "Before")
    names = [label.text for label in sorted(drawing.labels, key=lambda label: label.y)]
    assert names == ["x", "a/conv", "a/bn", "y"]
    assert [(box.label, box.note) for box in drawing.outline.boxes if box.kind == "node"] == [
        ("Conv", "2 constants"),
        ("BatchNormalization", "4 constants"),
    ]
    assert drawing.words == "Before: Conv → BatchNormalization"


def test_changes_that_look_alike_share_an_outline():
    drawings = Drawings()
    one, other = (drawings.of(fold(name), CONSTANTS, "Before") for name in ("a", "b"))
    assert one.outline is other.outline
    assert one.labels != other.labels
    assert len(drawings.outlines) == 1


def test_too_many_nodes_and_none_are_not_drawn():
    nodes = [RegionNode(str(i), "Relu", (f"t{i}",), (f"t{i + 1}",)) for i in range(200)]
    assert Drawings().of(nodes, {}, "Before") is None
    assert Drawings().of([], {}, "After") is None


@pytest.mark.parametrize("seed", range(40))
def test_no_box_covers_another_and_all_is_inside(seed):
    rng = random.Random(seed)
    nodes = []
    for i in range(rng.randint(1, 24)):
        read = rng.sample([f"t{j}" for j in range(-3, i)], rng.randint(1, min(3, i + 3)))
        nodes.append(RegionNode(f"n{i}", rng.choice(["Add", "InstanceNormalization"]), tuple(read), (f"t{i}",)))
    outline = Drawings().of(nodes, {}, "Before").outline
    for number, box in enumerate(outline.boxes):
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= outline.width
        assert box.y + box.height <= outline.height
        for other in outline.boxes[:number]:
            beside = abs(box.x - other.x) >= box.width - 1
            assert beside or box.y + box.height <= other.y + 1 or other.y + other.height <= box.y + 1
    for x, y in [point for line in outline.lines for point in line]:
        assert -1 <= x <= outline.width + 1
        assert -1 <= y <= outline.height + 1


def test_a_long_name_keeps_its_end():
    assert shortened("/encoder/layers.11/attention/norm/Mul_1", 20) == "/encod…on/norm/Mul_1"
    assert shortened("bn1", 20) == "bn1"
    assert len(shortened("x" * 99, 20)) == 20
