# ruff: noqa: E501  tables of literal messages
"""YAML as text: scalars, keys, anchors, positions, and everything that is not acceptable YAML."""

from __future__ import annotations

import contextlib
import re
import time
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile import yaml_tree
from trtnorm_cli.profile.yaml_tree import MAX_VALUES, read_tree


def value(text: str) -> Any:
    tree = read_tree(text, None)
    assert not tree.problems
    return tree.value


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        ("1e-3", 1e-3),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-2.", -2.0),
        (".inf", float("inf")),
        ("12", 12),
        ("-12", -12),
        ("010", 10),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("0x3", "0x3"),
        ("0x10", "0x10"),
        ("off", "off"),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("'3'", "3"),
        ("!!str 3", "3"),
    ],
)
def test_scalars_follow_the_core_schema_and_not_yaml_1_1(scalar: str, expected: object) -> None:
    (read,) = value(f"[{scalar}]" if scalar else "[~]")
    assert read == expected
    assert type(read) is type(expected)


def test_keys_are_names_as_written() -> None:
    assert value("{0: a, on: b, null: c, 1e3: d, input.1: e}") == {
        "0": "a",
        "on": "b",
        "null": "c",
        "1e3": "d",
        "input.1": "e",
    }


def test_anchors_and_merge_keys_are_written_out() -> None:
    text = "a: &a {min: 1, max: 2}\nb: {<<: *a, max: 3}\nc: {<<: [{min: 7}, *a]}\nd: *a\n"
    assert value(text) == {
        "a": {"min": 1, "max": 2},
        "b": {"min": 1, "max": 3},
        "c": {"min": 7, "max": 2},
        "d": {"min": 1, "max": 2},
    }


def test_a_value_behind_an_alias_stands_where_the_anchor_does() -> None:
    tree = read_tree("a: &a\n  min: 1\nb:\n  <<: *a\n  max: 3\nc: *a\n", "f")
    assert tree.positions.lines[("a", "min")] == 2
    assert tree.positions.lines[("b", "min")] == 2
    assert tree.positions.lines[("b", "max")] == 5
    assert tree.positions.lines[("c",)] == 6


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' is given twice, first on line 1"),
        ("a: 1\n'a': 3\n", 2, "the key 'a' is given twice, first on line 1"),
        ("a: &a {k: 1}\nb:\n  <<: *a\n  <<: *a\n", 4, "the key '<<' is given twice, first on line 3"),
        ("? [a]\n: 1\n", 1, "a key must be a plain text, not a list or a mapping"),
        ("a: &a [*a]\n", 1, "an alias stands inside the value that it names"),
        ("a: &a\n  <<: *a\n", 1, "'<<' merges a mapping into itself"),
        ("a:\n  <<: 3\n", 2, "'<<' merges mappings only, such as '<<: *name'"),
        ("a: !!python/object/apply:os.system [x]\n", 1, "the YAML tag !!python/object/apply:os.system is not supported here"),
        ("a: !shape 1x3\n", 1, "the YAML tag !shape is not supported here"),
        ("a: !!int x\n", 1, "'x' cannot be read as int"),
    ],
)  # fmt: skip
def test_what_yaml_allows_and_a_profile_does_not_is_one_problem(text: str, line: int, message: str) -> None:
    (problem,) = read_tree(text, None).problems
    assert (problem.line, problem.message) == (line, message)


def test_a_duplicate_behind_aliases_is_one_problem() -> None:
    assert len(read_tree("a: &a {k: 1, k: 2}\nb: *a\nc: {<<: *a}\n", None).problems) == 1


def test_an_integer_of_thousands_of_digits_is_a_problem_and_no_crash() -> None:
    (problem,) = read_tree("a: " + "1" * 9000, None).problems
    assert "cannot be read as int" in problem.message


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("a:\n\t- 1\n", "f:2", "a tab stands where YAML wants spaces"),
        ("a: [1,\n2\n", "f:3", "expected ',' or ']', but got '<stream end>', while parsing a flow sequence that starts on line 1"),
        ("a: 'x\n\n", "f:3", "found unexpected end of stream, while scanning a quoted scalar that starts on line 1"),
        ("a: 1\n b: 2\n", "f:2", "mapping values are not allowed here"),
        ("a: 1\n---\nb: 2\n", "f:2", "a second YAML document starts here"),
        ("a: *base\nb: &bases 1\n", "f:1", "no anchor is named '&base'; did you mean 'bases'?"),
        ("a: 1\nb: \x07\n", "f:2", "the character U+0007 is not allowed in YAML"),
        ("", "f", "the file is empty"),
        ("[" * 5000, "f", "values are nested more than 40 levels deep"),
    ],
)  # fmt: skip
def test_invalid_yaml_is_one_error_with_its_line(text: str, where: str, message: str) -> None:
    with pytest.raises(ProfileError) as caught:
        read_tree(text, "f")
    assert caught.value.where == where
    assert message in caught.value.summary


def test_deep_nesting_that_yaml_can_parse_is_a_problem() -> None:
    (problem,) = read_tree("a: " + "[" * 60 + "]" * 60, None).problems
    assert problem.message == "values are nested more than 40 levels deep"


def bomb(levels: int) -> str:
    steps = [f"k{level}: &k{level} [{', '.join([f'*k{level - 1}'] * 10)}]\n" for level in range(1, levels)]
    return "k0: &k0 [x, x]\n" + "".join(steps)


def merge_bomb(width: int, uses: int) -> str:
    return "a: &a {" + ", ".join(f"k{index}: 1" for index in range(width)) + "}\nb: {<<: [" + ", ".join(["*a"] * uses) + "]}\n"


@pytest.mark.parametrize("text", [bomb(20), merge_bomb(3000, 3000), "a: [" + "1," * MAX_VALUES + "1]"])
def test_an_alias_bomb_is_refused_quickly(text: str) -> None:
    start = time.process_time()
    with pytest.raises(ProfileError, match="the file holds more than 20000 values"):
        read_tree(text, None)
    assert time.process_time() - start < 5


# PyYAML writes 1e3 and 08 without quotes: to YAML 1.1 they are text, to YAML 1.2 and in a build profile numbers.
texts = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])).filter(
    lambda text: not re.fullmatch(r"[-+]?(?:[0-9.]+[eE][-+]?[0-9]+|0[0-9]*[89][0-9]*)", text)
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(plain)
def test_whatever_pyyaml_writes_is_read_back(tree: object) -> None:
    text = yaml.safe_dump({"top": tree}, allow_unicode=True, default_style='"' if isinstance(tree, str) else None)
    assert value(text) == {"top": tree}


@given(st.text(max_size=60))
def test_no_text_ends_in_anything_but_a_tree_or_a_profile_error(text: str) -> None:
    with contextlib.suppress(ProfileError):
        tree = read_tree(text, "f")
        assert all(problem.line for problem in tree.problems)


def test_an_error_without_a_place_is_told_too() -> None:
    problem = yaml_tree._syntax_problem(yaml.YAMLError("of a kind that no reader has"), "")
    assert problem.message == "the file is not valid YAML: of a kind that no reader has"
