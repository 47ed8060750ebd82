"""Records: frozen dataclasses that are written as JSON and read again, in manifests and between processes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from json.encoder import encode_basestring_ascii as _quoted
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import TypeAdapter
    from typing_extensions import Self

Kind = TypeVar("Kind")
# The metadata of a field whose key is left out where its value is the default: there is nothing to say.
LEFT_OUT_BY_DEFAULT: Mapping[str, object] = {"left out": "by default"}
# The key of a field's metadata that says its name in JSON, where that is another one than the field's.
KEY = "key"
# The metadata of a field that is for the program alone.
NOT_IN_JSON: Mapping[str, object] = {"not in JSON": True}
_AS_THEY_ARE = frozenset((str, int, float, bool, type(None)))


class Record:
    """The base of frozen dataclasses with the two ways between a record and JSON. One key is one field, in their order."""

    def to_json(self) -> dict[str, Any]:
        """The record as JSON values."""
        assert is_dataclass(self)
        return dict(_items(self))

    @classmethod
    def load(cls, values: object) -> Self:
        """The record that ``to_json`` made ``values`` of; raises ``ValueError`` for anything else."""
        return read(cls, values)


def json_of(value: object) -> Any:
    """``value`` as JSON can say it: records and pydantic's models as mappings, tuples as lists, paths as text."""
    if type(value) in _AS_THEY_ARE:  # a manifest has ten thousand of these
        return value
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, list | tuple):
        return [json_of(item) for item in value]
    if isinstance(value, Mapping):
        return {key: json_of(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return dict(_items(value))
    if isinstance(value, PurePath):
        return str(value)
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def json_lines(value: object, indent: str = "", levels: int = 3) -> str:
    """JSON values as text, with a line for each key and element of the first ``levels``, and what is below in that line.

    Python's library opens every level, and works in Python for that: three times as long for the manifest of a large model.
    Keys have to be strings; others raise ``TypeError``.
    """
    if not levels or not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    inner = f"{indent}  "
    if isinstance(value, dict):
        items, ends = [f"{_quoted(key)}: {json_lines(one, inner, levels - 1)}" for key, one in value.items()], "{}"
    else:
        items, ends = [json_lines(one, inner, levels - 1) for one in value], "[]"
    return f"{ends[0]}\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}{ends[1]}"


def read(kind: type[Kind], values: object) -> Kind:
    """A ``kind`` made of JSON values; raises pydantic's ``ValidationError``, which is a ``ValueError``."""
    hashable: Any = kind
    found: Kind = _reader(hashable).validate_python(values)
    return found


@cache
def _reader(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter  # here, because a child process that only writes does without

    return TypeAdapter(kind)


def _items(record: DataclassInstance) -> Iterator[tuple[str, Any]]:
    for one, key, may_be_left_out in _fields_in_json(type(record)):
        value = getattr(record, one.name)
        if not (may_be_left_out and value == _default(one)):
            yield key, json_of(value)


@cache
def _fields_in_json(kind: type[DataclassInstance]) -> list[tuple[Field[Any], str, bool]]:
    """The fields of a record that are written, with their names there, and whether one that has its default is left out."""
    written = (one for one in fields(kind) if not one.metadata.keys() >= NOT_IN_JSON.keys())
    return [(one, one.metadata.get(KEY, one.name), one.metadata.keys() >= LEFT_OUT_BY_DEFAULT.keys()) for one in written]


def _default(one: Field[Any]) -> object:
    return one.default if one.default_factory is MISSING else one.default_factory()
