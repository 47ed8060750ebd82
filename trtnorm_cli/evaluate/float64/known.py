"""Constants and results that several evaluations share: what was computed once on the same values is not computed again.

A rewritten model, TensorRT's network of it and the model itself hold mostly the same nodes. An array is recognised by the
memory that it lies in, so that everything recognised is kept alive here, and small ones by what they hold.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from trtnorm_cli.contiguous import contiguous
from trtnorm_cli.evaluate.fingerprint import fingerprint
from trtnorm_cli.evaluate.float64.computed_constants import ComputedConstants
from trtnorm_cli.evaluate.float64.kept_arrays import KeptArrays, owner_of
from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.node_keys import node_key
from trtnorm_cli.evaluate.float64.raising import Stored, raised_array
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.stored import ends_of, file_part, holds, mapped
from trtnorm_cli.onnx_model.wire import FilePart

if TYPE_CHECKING:
    from trtnorm_cli.evaluate.float64.batchnorm_constants import FoldedProduct, Normalized

MOST_BYTES = 1 << 29
STORED_FROM = 1 << 17
"""Constants of so many elements stay in float32, where their numbers are, and are raised by who reads them."""
_SMALL = 64
# So many elements at either end are looked at first.
_END = 8
_FLOAT32 = np.dtype(np.float32)
# These give their first input in another shape, however they say which.
_RESHAPES = frozenset(("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))


@dataclass(frozen=True)
class Place:
    """Where the bytes of a constant are, and the number of their ONNX type. ``state`` tells the file from a later one there."""

    part: FilePart
    kind: int
    state: tuple[int, ...]

    @classmethod
    def of(cls, tensor: TensorProto, folder: Path | None) -> Place:
        """The place of a tensor whose bytes are in a file; ``folder`` is what its location is relative to."""
        part = file_part(tensor, folder)
        try:
            found = part.file.stat()
        except OSError:  # reading it says why
            return cls(part, tensor.data_type, ())
        return cls(part, tensor.data_type, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


# Of the room for results, what may be taken by those of a candidate that is none any more.
_SPARED = 0.5


class Known:
    """The constants that were met, and the results of nodes by operator, attributes and inputs, as long as there is room.

    With ``takes_folds`` what a BatchNormalization became has its result (``folded_batchnorms.py``).
    """

    def __init__(self, most_bytes: int | None = None, takes_folds: bool = False) -> None:
        most_bytes = MOST_BYTES if most_bytes is None else most_bytes
        self.takes_folds = takes_folds
        self._constants, self._results = KeptArrays(most_bytes), KeptArrays(most_bytes)
        self._equal: dict[Hashable, list[np.ndarray]] = {}
        self._read: dict[Place, np.ndarray] = {}
        # By constants in another type, which are kept as well: in float64, and in float32.
        self._raised: dict[int, np.ndarray] = {}
        self._lowered: dict[int, np.ndarray] = {}
        # What was found, with the arrays of results, by identity, that it is of or was found by.
        self._found: dict[Hashable, tuple[Sequence[Any], Set[int]]] = {}
        self._keeps_large = True
        self._computed = ComputedConstants()
        # Attributes by identity, with what they are compared by; and the key of the node that was asked for last.
        self._attributes: dict[tuple[int, int], tuple[Mapping[str, Any], Hashable]] = {}
        self._key: Hashable | None = None

    def for_other_inputs(self) -> Known:
        """The same constants, and no results."""
        other = Known(self._results.most_bytes, self.takes_folds)
        other._constants, other._equal, other._attributes = self._constants, self._equal, self._attributes
        other._read, other._raised, other._lowered = self._read, self._raised, self._lowered
        other._keeps_large = self._keeps_large
        return other

    def lend(self, places: Iterable[Place]) -> None:
        """Use large constants where they lie, in files that nobody else writes to. From now on only these are kept.

        What a model reads from another file is held to them, piece by piece, and takes no memory where it is the same.
        """
        self._keeps_large = False
        for place in places:
            if place.kind == TensorProto.FLOAT and place.part.length >= STORED_FROM * _FLOAT32.itemsize:
                flat = mapped(place.part).view(_FLOAT32)
                equal = self._equal.setdefault(_ends(flat), [])
                one = next((other for other in equal if np.array_equal(_bits(other), _bits(flat))), None)
                if one is None:
                    self._constants.hold(flat)
                    equal.append(flat)
                self._read[place] = flat if one is None else one

    def read(self, place: Place) -> np.ndarray | None:
        """The constant that was read at ``place`` before, or one with the same bytes."""
        if place not in self._read and place.kind == TensorProto.FLOAT:
            equal = self._with_bytes_of(place.part)
            if equal is not None:
                self._read[place] = equal
        return self._read.get(place)

    def _with_bytes_of(self, part: FilePart) -> np.ndarray | None:
        """The constant in float32 that has the bytes of ``part``, which are not all held in memory to find out."""
        size = part.length // _FLOAT32.itemsize
        if size < STORED_FROM:
            return None
        ends = ends_of(part, _END * _FLOAT32.itemsize)
        equal = self._equal.get((_FLOAT32, size, *ends), ())
        return next((constant for constant in equal if holds(part, constant)), None)

    def remember(self, place: Place, value: np.ndarray) -> None:
        """Remember that ``value`` is at ``place``, where it is kept alive anyway."""
        if value.size > _SMALL and value in self._constants:
            self._read[place] = value

    def constant(self, value: Any) -> Any:
        """``value``, or the equal array of an earlier model."""
        return self._interned(value, self._keeps_large)

    def fed(self, value: Any) -> Any:
        """The value of an input, or the equal array of an earlier evaluation. It is kept whatever its size."""
        return self._interned(value, keeps_large=True)

    def _interned(self, value: Any, keeps_large: bool) -> Any:
        if not isinstance(value, np.ndarray) or value.size <= _SMALL or value.dtype.hasobject:
            return value
        flat = contiguous(value).reshape(-1)
        key = _ends(flat)
        for other in self._equal.get(key, ()):
            if np.array_equal(_bits(other), _bits(flat)):
                return other.reshape(value.shape)
        if (flat.size < STORED_FROM or keeps_large) and self._constants.keep(flat):
            self._equal.setdefault(key, []).append(flat)
            return flat.reshape(value.shape)
        return value

    def raised(self, stored: Stored) -> np.ndarray:
        """A constant in float64. It is raised once while there is room for it."""
        value = stored.array
        owner = owner_of(value)
        if value not in self._constants or owner.nbytes != value.nbytes or not value.flags.c_contiguous:
            return raised_array(stored)
        if id(owner) not in self._raised:
            raised = raised_array(value.reshape(-1))
            if not self._constants.keep(raised):
                return raised.reshape(value.shape)
            self._raised[id(owner)] = raised
        return self._raised[id(owner)].reshape(value.shape)

    def identity(self, value: np.ndarray | Stored) -> Hashable:
        """A key that tells a constant from others; neither its shape nor the floating type that it is in counts.

        That of one that there is no room for holds a fingerprint. Were it that of another constant too, the verdict would be
        stricter: no noise is allowed for in a constant that all candidates hold.
        """
        value = value.array if isinstance(value, Stored) else value
        if value.dtype.hasobject:
            return tuple(value.reshape(-1).tolist())
        if value.size <= _SMALL:
            return value.tobytes()
        if value.size >= STORED_FROM and value.dtype == np.float64:
            value = self._lower(value)
        if value in self._constants:
            return id(owner_of(value))
        return value.dtype, value.size, fingerprint(value)

    def _lower(self, value: np.ndarray) -> np.ndarray:
        """A constant in float32, if that holds the same numbers."""
        owner = id(owner_of(value))
        if owner in self._lowered:
            return self._lowered[owner]
        lower = value.astype(np.float32)
        lowered = self.constant(lower) if np.array_equal(_bits(lower.astype(np.float64)), _bits(value)) else value
        if value in self._constants and lowered in self._constants:
            self._lowered[owner] = lowered
        return lowered

    def results(self, call: Call) -> Sequence[Any] | None:
        """The results of an equal node, in the shapes that these inputs give; None where there is none."""
        self._key = None if call.op_type in _RESHAPES else node_key(call, self._token, self._attributes)
        found, _ = self._found.get(self._key, (None, None))
        if found is not None and call.op_type == "MatMul":
            a, b = call.inputs
            if a.ndim > 1 and b.ndim > 1:
                return (found[0].reshape(*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]),)
        return found

    def keep(self, call: Call, results: Sequence[Any], learn: bool) -> Sequence[Any]:
        """Gives the results of a node that was just asked for, or the same that another node had.

        With ``learn`` they are remembered while there is room.
        """
        if call.op_type in _RESHAPES:
            return [self._reshaped(call.x, results[0], learn)]
        if learn:
            self.learns(call, results)
        return results

    def learns(self, call: Call, results: Sequence[Any]) -> bool:
        """Remember the results of a node that was just asked for; False where it is not known again, or there is no room.

        Results of one that is not known again are recognised all the same, where they go into others.
        """
        if not all(map(self._kept, results)) or self._key is None:
            return False
        self._found[self._key] = tuple(results), self._results.among((*call.inputs, *results))
        return True

    def learn_late(self, call: Call, results: Sequence[Any]) -> None:
        """Remember results, which are kept, of a node that was asked for before: another node gives them under a name."""
        if (key := node_key(call, self._token, self._attributes)) is not None and all(map(self._kept, results)):
            self._found[key] = tuple(results), self._results.among((*call.inputs, *results))

    def learn_normalized(self, data: Any, made: Normalized) -> None:
        """Remember what a BatchNormalization of ``data`` comes to, where its result is remembered."""
        self._add(("normalized", self._token(data)), made, (data, made.result))

    def normalized(self, data: Any) -> Sequence[Normalized]:
        """The scales and shifts of BatchNormalizations of ``data``, with their results."""
        return self._found.get(("normalized", self._token(data)), ((), None))[0]

    def learn_folded(self, product: Call, made: FoldedProduct) -> None:
        """Remember what a BatchNormalization makes of ``product``, where its result is remembered."""
        self._add(self._of_data(product), made, (product.x, made.normalized.result))

    def folded(self, product: Call) -> Sequence[FoldedProduct]:
        """The products with the data and the attributes of ``product`` that BatchNormalizations read."""
        return self._found.get(self._of_data(product), ((), None))[0]

    def learn_computed(self, name: str, value: Any, error: np.ndarray) -> None:
        """Remember what was computed from constants alone, and how far a constant in its place may be off."""
        if self.takes_folds and isinstance(value, np.ndarray) and ComputedConstants.takes(value, error) and self._kept(value):
            self._computed.learn(name, value, error)

    def computed(self, name: str, constant: Any) -> Any | None:
        """The value that was computed under ``name`` where the ``constant``, or one with its numbers, holds it; else None."""
        array = constant.array if isinstance(constant, Stored) else constant
        if not isinstance(array, np.ndarray):
            return None
        kind = np.dtype(np.float64) if isinstance(constant, Stored) else array.dtype
        found = self._computed.held(name, array, kind, lambda: self.identity(array))
        return None if found is None or found not in self._results or found.size != array.size else found.reshape(array.shape)

    def _of_data(self, product: Call) -> tuple[str, Hashable]:
        call = Call(product.op_type, product.opset, product.inputs[:1], product.attributes, product.outputs)
        return "folded", node_key(call, self._token, self._attributes)

    def _add(self, key: tuple[str, Hashable], made: Normalized | FoldedProduct, values: Sequence[Any]) -> None:
        if self.takes_folds and key[1] is not None and self._results.among(values[-1:]):
            found, numbers = self._found.get(key, ((), frozenset()))
            self._found[key] = (*found, made), numbers | self._results.among(values)

    def _reshaped(self, value: Any, result: Any, learn: bool) -> Any:
        """A view is recognised as it is, a copy as that of another reshaping."""
        token = self._token(value)
        if token is None or self._token(result) is not None:
            return result
        key = ("reshaped", token, result.shape)
        if learn and key not in self._found and self._kept(result):
            self._found[key] = (result,), self._results.among((value, result))
        found, _ = self._found.get(key, ((result,), None))
        return found[0]

    @property
    def room(self) -> int:
        """Bytes of results that may still be remembered."""
        return self._results.room

    def mark(self, values: Iterable[Any] | None = None) -> frozenset[int]:
        """The arrays that are remembered now, for :meth:`forget_since`; with ``values`` those of them that these lie in."""
        return self._results.numbers() if values is None else self._results.among(values)

    def forget_since(self, mark: frozenset[int]) -> None:
        """Forget what was found since a mark, where that takes room that what is found next may want."""
        if self._results.most_bytes - self.room > _SPARED * self._results.most_bytes:
            self._forget(self._results.numbers() - mark)

    def forget_all_but(self, needed: Iterable[Any]) -> None:
        """Forget all results but those whose memory is ``needed``, and what was found by the others."""
        self._forget(self._results.numbers() - self._results.among(needed))

    def _forget(self, numbers: Set[int]) -> None:
        # An array that is gone may lie where the next one will: nothing may be recognised by it any more.
        self._found = {key: found for key, found in self._found.items() if found[1].isdisjoint(numbers)}
        self._computed.forget(lambda value: not numbers.isdisjoint(self._results.among([value])))
        self._results.drop(numbers)

    def is_kept_elsewhere(self, result: np.ndarray) -> None:
        """A result that was remembered takes no room: somebody else keeps it as well."""
        if result in self._results:
            self._results.hold(result)

    def _kept(self, value: Any) -> bool:
        if value is None:
            return True
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            return False
        return value in self._constants or self._results.keep(value)

    def _token(self, value: Any) -> Hashable | None:
        """The key that tells the value from any other.

        Of a large array it is its place in memory, which nothing else can have.
        """
        if value is None:
            return "absent"
        if not isinstance(value, np.ndarray) or value.dtype.hasobject:
            return None
        if value.size <= _SMALL:
            return value.dtype, value.shape, value.tobytes()
        if value not in self._constants and value not in self._results:
            return None
        steps = tuple(step for step, length in zip(value.strides, value.shape, strict=True) if length != 1)
        return id(owner_of(value)), _address(value), value.dtype, value.shape, steps


def _ends(flat: np.ndarray) -> Hashable:
    """A key that equal constants have in common, and few others have."""
    return flat.dtype, flat.size, flat[:_END].tobytes(), flat[-_END:].tobytes()


def _bits(flat: np.ndarray) -> np.ndarray:
    """Zeros differ by their sign here, and what is not a number equals itself."""
    return flat.view(np.uint64 if flat.itemsize == np.uint64().itemsize else np.uint8)


def _address(value: np.ndarray) -> int:
    return int(value.__array_interface__["data"][0])
