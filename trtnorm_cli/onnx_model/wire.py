"""protobuf's wire format, as far as it takes to exchange parts of a message without decoding the rest.

A message is a row of fields: a key (number and kind), then the value. Fields of the kind ``BYTES`` hold strings, arrays or
inner messages, after their length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from trtnorm_cli.light_dataclass import dataclass

VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5
_VARINT_BYTES = 10


class UnexpectedEncoding(Exception):
    """The bytes are not what a serialiser writes: damaged, or of a form that only a full parser understands."""


class Field(NamedTuple):
    """Where a field begins, where its value begins, and where both end. ``integer`` is the value of a varint."""

    number: int
    kind: int
    begin: int
    value: int
    end: int
    integer: int


@dataclass(frozen=True)
class FilePart:
    """Bytes that stand in a file."""

    file: Path
    offset: int
    length: int

    def __len__(self) -> int:
        return self.length


Piece = bytes | FilePart
Edit = Callable[[int, int], "list[Piece] | None"]


def fields(data: memoryview, begin: int, end: int) -> Iterator[Field]:
    """The fields of the message in ``data[begin:end]``. Raises ``UnexpectedEncoding``."""
    at = begin
    while at < end:
        start = at
        key, at = _varint(data, at, end)
        kind, number, integer = key & 7, key >> 3, 0
        if kind == BYTES:
            length, at = _varint(data, at, end)
            stop = at + length
        elif kind == VARINT:
            integer, stop = _varint(data, at, end)
        elif kind in (FOUR, EIGHT):
            stop = at + (4 if kind == FOUR else 8)
        else:
            raise UnexpectedEncoding(f"a field of kind {kind} at {start}")
        if not number or stop > end:
            raise UnexpectedEncoding(f"a field that does not fit at {start}")
        yield Field(number, kind, start, at, stop, integer)
        at = stop


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, min(end, at + _VARINT_BYTES)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise UnexpectedEncoding(f"a number without an end at {at}")


def varint(value: int, taken: int = 1) -> bytes:
    """``value`` as protobuf writes it, or in more bytes than it needs where these are ``taken``."""
    encoded = bytearray()
    while value > 0x7F or len(encoded) + 1 < taken:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def head(number: int, length: int, taken: int = 1) -> bytes:
    """The bytes that stand before the ``length`` bytes of field ``number``; ``taken`` are those of the length at least."""
    return varint(number << 3 | BYTES) + varint(length, taken)


def text_field(number: int, text: str) -> bytes:
    """A whole field that holds ``text``."""
    encoded = text.encode()
    return head(number, len(encoded)) + encoded


def edited(
    data: memoryview, begin: int, end: int, edits: Mapping[int, Edit], once: frozenset[int] = frozenset()
) -> list[Piece] | None:
    """The message in ``data[begin:end]`` with some inner messages exchanged; None where nothing changes.

    ``edits`` has a function for each field number, which is given where an inner message is and returns what comes instead, or
    None. Fields ``once`` occur once: a parser merges repeated ones, which cannot be done to parts. Raises
    ``UnexpectedEncoding``.
    """
    pieces: list[Piece] = []
    copied, seen = begin, set()
    for field in fields(data, begin, end):
        edit = edits.get(field.number)
        if edit is None or field.kind != BYTES:
            continue
        if field.number in once and field.number in seen:
            raise UnexpectedEncoding(f"field {field.number} is there twice")
        seen.add(field.number)
        new = edit(field.value, field.end)
        if new is not None:
            pieces += [bytes(data[copied : field.begin]), head(field.number, sum(map(len, new))), *new]
            copied = field.end
    return [*pieces, bytes(data[copied:end])] if pieces else None
