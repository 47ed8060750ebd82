"""cast-moved-weights: weights of signed 8 bits are cast in the file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models import operators
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import by_onnxruntime, model
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.rewrite.rule import NewConstant
from trtnorm_cli.rewrite.rules import cast_moved_weights as rule

NAME = rule.RULE.name
IDS = {"ids": np.array([[0, 5, 11], [3, 3, 7]])}


def table(body: str = "g = Gather(w, ids) y = Cast <to=1>(g)", dtype: type = np.int8, kind: str = "float"):
    held = {"w": np.random.default_rng(0).integers(-128, 128, (12, 6)).astype(dtype)}
    return model(f"(int64[2, 3] ids) => ({kind}[] y) {{ {body} }}", held)


@pytest.mark.parametrize(("body", "kind", "left"), [
    ("g = Gather(w, ids) y = Cast <to=1>(g)", "float", ["Gather"]),
    ("g = Gather(w, ids) y = Cast <to=10>(g)", "float16", ["Gather"]),
    ("g = Gather(w, ids) y = Cast <to=6>(g)", "int32", ["Gather"]),
    ("g = Gather(w, ids) t = Transpose <perm=[2, 0, 1]>(g) y = Cast <to=1>(t)", "float", ["Gather", "Transpose"]),
    ("c = Cast <to=1>(w) y = Gather(c, ids)", "float", ["Identity", "Gather"]),
])  # fmt: skip
def test_every_form(rewrite, body, kind, left):
    before = table(body, kind=kind)
    result = rewrite(before, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model) == left
    np.testing.assert_array_equal(by_onnxruntime(before, IDS)[0], by_onnxruntime(result.model, IDS)[0])


def test_a_wrong_value_is_caught(rewrite):
    def wrong(m):
        made = rule.cast_in_the_file(m)
        return replace(made, inputs=(NewConstant("weight", made.inputs[0].value + 1), *made.inputs[1:]))

    result = rewrite(table(), rules=(replace(rule.RULE, replacement=wrong),))
    assert result.outcome.changes == []
    assert len(result.outcome.failed) == 1


REFUSALS = [
    Refusal(rule.weights_are_signed_bytes, table(dtype=np.uint8), "w is of type uint8"),
    Refusal(rule.the_type_holds_them, table("g = Gather(w, ids) y = Cast <to=2>(g)", kind="uint8"), "casts to another type"),
]


@pytest.mark.parametrize("case", REFUSALS[1:], ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


@pytest.mark.parametrize("made", [REFUSALS[0].model, table("g = Gather(w, ids) c = Cast <to=6>(ids) y = Cast <to=1>(c)")])
def test_what_is_no_table_of_bytes_is_nothing_to_explain(rewrite, made):
    result = rewrite(made, rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert result.outcome.rejections == ()


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(table()).model)
    assert twice.outcome.changes == []
