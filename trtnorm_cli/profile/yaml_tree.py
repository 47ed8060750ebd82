"""Read YAML text as plain Python values, with the line of each.

Scalars follow the core schema of YAML 1.2 (yaml.org/spec/1.2.2, §10.3) without its octal and hexadecimal integers. PyYAML's 1.1
reads ``1e-3`` as a text, ``off`` as a boolean and ``1:30`` as the number 90. Keys are always taken as written, because names of
ONNX inputs may be ``0``, ``on`` or ``input.1``.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.positions import KeyPath, Positions
from trtnorm_cli.profile.problems import Problem, refusal
from trtnorm_cli.suggest import did_you_mean

MAX_VALUES = 20_000
MAX_DEPTH = 40
MAX_SHOWN_DEPTH = 8
_TAG = "tag:yaml.org,2002:"
_NESTED_TOO_DEEPLY = f"values are nested more than {MAX_DEPTH} levels deep"


class _CoreLoader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012  PyYAML's own protocol


for _name, _pattern, _first in (
    ("null", r"(?:~|null|Null|NULL|)", [*"~nN", ""]),
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", [*"tTfF"]),
    ("int", r"[-+]?[0-9]+", [*"-+0123456789"]),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
    ("float", r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))", [*"-+."]),
    ("merge", r"<<", ["<"]),
):
    _CoreLoader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"^{_pattern}$"), _first)


@dataclass(frozen=True)
class Tree:
    """A file's value, where each part of it stands, and what is wrong with it as YAML.

    ``unread`` names the parts that could not be read. They are None in ``value``, and one problem each is enough.
    """

    value: Any
    positions: Positions
    problems: tuple[Problem, ...]
    unread: frozenset[KeyPath]


def read_tree(text: str, source: str | None) -> Tree:
    """The value that ``text`` describes and the position of every part of it.

    Duplicate keys, unknown tags, unreadable numbers and aliases inside their own value are problems of the result.
    Raises ProfileError for invalid YAML, for an empty document, and for more than 20 000 values, aliases written out.
    """
    nowhere = Positions(source)
    try:
        node = yaml.compose(text, Loader=_CoreLoader)
    except RecursionError:
        raise refusal([Problem((), _NESTED_TOO_DEEPLY)], nowhere) from None
    except yaml.YAMLError as error:
        raise refusal([_syntax_problem(error, text)], nowhere) from None
    if node is None:
        hint = "it should begin with 'optimization_profiles:'; a model with static inputs alone needs no build profile"
        raise refusal([Problem((), "the file is empty", hint)], nowhere)
    reader = _TreeReader()
    try:
        value = reader.value(node, (), ())
    except _TooLargeError:
        message = f"the file holds more than {MAX_VALUES} values, counting each alias as what it stands for"
        raise refusal([Problem((), message)], nowhere) from None
    return Tree(value, Positions(source, reader.lines, text), tuple(reader.problems), frozenset(reader.unread))


class _TooLargeError(Exception):
    pass


class _TreeReader:
    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self.unread: set[KeyPath] = set()
        self._count = 0
        self._refused: set[int] = set()

    def value(self, node: yaml.Node, path: KeyPath, inside: tuple[int, ...]) -> Any:
        self._account(1)
        if id(node) in inside:
            return self._unreadable(node, path, "an alias stands inside the value that it names")
        if len(inside) >= MAX_DEPTH:
            return self._unreadable(node, path, _NESTED_TOO_DEEPLY)
        inside = (*inside, id(node))
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path, inside)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return self._sequence(node, path, inside)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        return self._unreadable(node, path, f"the YAML tag {_shown_tag(node.tag)} is not supported here")

    def _sequence(self, node: yaml.SequenceNode, path: KeyPath, inside: tuple[int, ...]) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            here: KeyPath = (*path, index)
            self.lines[here] = item.start_mark.line + 1
            items.append(self.value(item, here, inside))
        return items

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, inside: tuple[int, ...]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, (key_node, item) in self._entries(node, path, inside).items():
            here: KeyPath = (*path, key)
            self.lines[here] = key_node.start_mark.line + 1
            result[key] = self.value(item, here, inside)
        return result

    def _entries(
        self, node: yaml.MappingNode, path: KeyPath, inside: tuple[int, ...]
    ) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """The key node and value node of each key. A key of the mapping itself wins over one that is merged in."""
        own: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        first_lines: dict[str, int] = {}
        for key_node, item in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, path, "a key must be a plain text, not a list or a mapping")
                continue
            key = key_node.value
            if key in first_lines:
                message = f"the key {key!r} is given twice, first on line {first_lines[key]}"
                self._refuse(key_node, path, message)
                continue
            first_lines[key] = key_node.start_mark.line + 1
            if key_node.tag == f"{_TAG}merge":
                merged = self._merged(item, path, inside)
            else:
                own[key] = (key_node, item)
        return {**merged, **own}

    def _merged(self, node: yaml.Node, path: KeyPath, inside: tuple[int, ...]) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        self._account(1 + len(node.value))
        if id(node) in inside:
            self._refuse(node, path, "'<<' merges a mapping into itself")
            return {}
        inside = (*inside, id(node))
        if isinstance(node, yaml.MappingNode):
            return self._entries(node, path, inside)
        if isinstance(node, yaml.SequenceNode) and all(isinstance(item, yaml.MappingNode) for item in node.value):
            merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
            for item in node.value:
                for key, entry in self._merged(item, path, inside).items():
                    merged.setdefault(key, entry)
            return merged
        self._refuse(node, path, "'<<' merges mappings only, such as '<<: *name'")
        return {}

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            if kind == "int":
                return int(text)
            if kind == "float":
                return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        except (ValueError, KeyError):
            return self._unreadable(node, path, f"{_cut(text)!r} cannot be read as {kind}")
        if kind in ("str", "merge", "!"):
            return text
        return self._unreadable(node, path, f"the YAML tag {_shown_tag(node.tag)} is not supported here")

    def _account(self, values: int) -> None:
        self._count += values
        if self._count > MAX_VALUES:
            raise _TooLargeError

    def _unreadable(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        self.unread.add(path)
        self._refuse(node, path, message)

    def _refuse(self, node: yaml.Node, path: KeyPath, message: str) -> None:
        # A value that several aliases name is read several times and is one mistake.
        if id(node) not in self._refused:
            self._refused.add(id(node))
            self.problems.append(Problem(path[:MAX_SHOWN_DEPTH], message, line=node.start_mark.line + 1))


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.reader.ReaderError):
        at = int(error.position)
        message = f"the character U+{ord(text[at]):04X} is not allowed in YAML"
        return Problem((), message, line=text.count("\n", 0, at) + 1)
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem((), f"the file is not valid YAML: {error}")
    line = error.problem_mark.line + 1 if error.problem_mark else None
    problem = error.problem or error.context or "it cannot be read"
    if "'\\t'" in problem:
        return Problem((), "a tab stands where YAML wants spaces", "indent with spaces", line)
    if "undefined alias" in problem:
        name = problem.partition("'")[2].rstrip("'")
        defined = re.findall(r"&([\w-]+)", text)
        return Problem((), f"no anchor is named '&{name}'{did_you_mean(name, defined)}", line=line)
    if "expected a single document" in (error.context or ""):
        return Problem((), "a second YAML document starts here", "keep one document to a file: remove '---'", line)
    started = f", {error.context}" if error.context else ""
    if error.context_mark is not None:
        started += f" that starts on line {error.context_mark.line + 1}"
    hint = "look for an unclosed bracket or quote, a missing space after ':', or a wrong indentation"
    return Problem((), f"the file is not valid YAML: {problem}{started}", hint, line)


def _shown_tag(tag: str) -> str:
    return tag.replace(_TAG, "!!")


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."
