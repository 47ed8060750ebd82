"""The file of a shelf completed to that of a whole model, so that large new weights are written once.

protobuf's fields may come in any order, and where one is given twice that has one value, the last counts. So the file becomes

    fields of the model | graph: (filling, a tensor and its values)*, the rest of the graph | the rest of the model

with the values where they lie already. The shelf has left room for what stands before them. Where there is more room than that
takes, it is filled with a name of the graph of blanks, which the graph's own overrides.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.light_file import message_in_parts
from trtnorm_cli.onnx_model.shelf import are_all_of_a_shelf, given_away, is_on_a_shelf
from trtnorm_cli.onnx_model.stored import file_part, is_external, write_pieces
from trtnorm_cli.onnx_model.wire import FilePart, head, varint

# Less is copied in no time.
_FROM_BYTES = 1 << 24
# Field numbers of onnx.proto.
_MODEL_GRAPH, _GRAPH_NAME, _GRAPH_INITIALIZER, _TENSOR_RAW = 7, 2, 5, 9
# The bytes that the longest length takes: parsers read no more.
_LENGTH_BYTES = 5


@dataclass(frozen=True)
class _Lying:
    """An initializer, by its place in the graph, whose values lie at ``part``, and its ``fields`` besides these."""

    place: int
    part: FilePart
    fields: bytes

    @property
    def end(self) -> int:
        """Where its values end."""
        return self.part.offset + self.part.length

    def behind(self, begin: int) -> bytes | None:
        """The bytes from ``begin`` to the values; None where these need more room."""
        fields = self.fields + head(_TENSOR_RAW, self.part.length)
        before = head(_GRAPH_INITIALIZER, len(fields) + self.part.length)
        left = self.part.offset - begin - len(before) - len(fields)
        if left == 1 and len(before) - 1 < _LENGTH_BYTES:  # no field is so short, but a number may be longer than it has to be
            before, left = head(_GRAPH_INITIALIZER, len(fields) + self.part.length, len(before)), 0
        return None if left < 0 or left == 1 else _filling(left) + before + fields


def _filling(length: int) -> bytes:
    """Names of the graph that take ``length`` bytes, of which there is more than one or none."""
    if not length:
        return b""
    for taken in range(1, _LENGTH_BYTES + 1):
        blanks = length - 1 - taken
        if len(varint(blanks)) == taken:
            return head(_GRAPH_NAME, blanks) + b" " * blanks
    return head(_GRAPH_NAME, 0) + _filling(length - 2)  # between the longest with one length and the shortest with the next


def completed(model: onnx.ModelProto, target: Path, folder: Path | None) -> bool:
    """Make ``target`` a file of ``model`` out of that of a shelf which holds large weights of it, and nothing else.

    Returns False where nothing was made. Locations are relative to ``folder``. Raises ``OSError``.
    """
    lying = _most_on_a_shelf(model, folder)
    if sum(each.part.length for each in lying) < _FROM_BYTES or not model.graph.name:
        return False
    if not are_all_of_a_shelf(each.part for each in lying):  # else what nobody needs would have to be filled
        return False
    fields = message_in_parts(model, folder, {each.place for each in lying})
    beginning = _with_graph(fields.before, lying[-1].end + sum(map(len, fields.graph)))
    begins = [len(beginning), *(each.end for each in lying)]
    fillings = [each.behind(begin) for begin, each in zip(begins, lying, strict=False)]
    if None in fillings or given_away([each.part for each in lying], target) is None:
        return False
    with target.open("r+b") as stream:
        stream.write(beginning)
        for begin, filling in zip(begins, fillings, strict=False):
            stream.seek(begin)
            stream.write(filling or b"")
        stream.truncate(lying[-1].end)
        stream.seek(lying[-1].end)
        write_pieces([*fields.graph, *fields.behind], stream)
    return True


def _most_on_a_shelf(model: onnx.ModelProto, folder: Path | None) -> list[_Lying]:
    """Initializers on the shelf that has most of them, in their order there. Of several with the same values the first."""
    found: dict[Path, dict[FilePart, int]] = defaultdict(dict)
    for place, tensor in enumerate(model.graph.initializer):
        if is_external(tensor) and is_on_a_shelf(part := file_part(tensor, folder)):
            found[part.file].setdefault(part, place)
    most = max(found.values(), key=lambda there: sum(map(len, there)), default={})
    return [_Lying(place, part, _fields(model.graph.initializer[place])) for part, place in sorted(most.items(), key=_offset)]


def _offset(item: tuple[FilePart, int]) -> int:
    return item[0].offset


def _fields(tensor: onnx.TensorProto) -> bytes:
    """The fields of ``tensor`` but for where its values are."""
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    del copy.external_data[:]
    copy.ClearField("data_location")
    return copy.SerializeToString(deterministic=True)


def _with_graph(before: bytes, end: int) -> bytes:
    """The bytes ``before`` the graph, and the head of that, which ends at ``end``."""
    for taken in range(1, _LENGTH_BYTES + 1):
        length = end - len(before) - 1 - taken
        if len(varint(length)) <= taken:
            return before + head(_MODEL_GRAPH, length, taken)
    raise ValueError(f"a graph of {end} bytes has no length that a parser reads")
