"""Records as JSON: the same keys in the same order, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record, json_lines, json_of


@dataclass(frozen=True)
class Part(Record):
    name: str
    sizes: tuple[int | str | None, ...] | None = None


@dataclass(frozen=True)
class Odd(Record):
    unread: str


@dataclass(frozen=True, kw_only=True)
class Whole(Record):
    parts: tuple[Part | Odd, ...]
    error: str | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    values: dict[str, Part] = field(default_factory=dict, metadata=LEFT_OUT_BY_DEFAULT)
    share: float | None = None


FULL = Whole(parts=(Part("a", (1, "N", None)), Odd("?")), error="no", values={"x": Part("b")}, share=0.5)


@pytest.mark.parametrize(("record", "keys"), [
    (FULL, ["parts", "error", "values", "share"]),
    (Whole(parts=()), ["parts", "share"]),
    (Whole(parts=(), error=""), ["parts", "error", "share"]),
])  # fmt: skip
def test_what_is_written_is_read_again(record, keys):
    values = json.loads(json.dumps(record.to_json()))
    assert list(values) == keys
    assert Whole.load(values) == record


def test_records_inside_other_values():
    assert json_of({"a": (Part("p"), 1)}) == {"a": [{"name": "p", "sizes": None}, 1]}


DEEP = {"a": {"b": [{"c": [1, 2], "d": {}}, None], "e": [], "f": "é\n"}, "g": [[[0.5]], [True]]}


def test_lines_open_the_first_levels():
    assert json.loads(json_lines(DEEP)) == DEEP
    lines = [line.strip() for line in json_lines(DEEP).splitlines()]
    assert lines[1:6] == ['"a": {', '"b": [', '{"c": [1, 2], "d": {}},', "null", "],"]
    assert json_lines(DEEP["a"], levels=0) == json.dumps(DEEP["a"])
    opened = json.dumps({"a": {"b": [1, "x"]}, "c": {}}, indent=2)
    assert json_lines(json.loads(opened)) == opened
    with pytest.raises(TypeError, match="string"):
        json_lines({1: 2})


@pytest.mark.parametrize("values", [None, [], {"parts": 3}, {"parts": [{"nothing": 1}]}, {"parts": [], "share": "half"}])
def test_anything_else_is_a_value_error(values):
    with pytest.raises(ValueError, match="validation error"):
        Whole.load(values)


def test_keys_of_later_versions_are_passed_over():
    assert Whole.load({**FULL.to_json(), "later": 1}) == FULL
