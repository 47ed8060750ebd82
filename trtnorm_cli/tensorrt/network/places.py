"""The places where a parsed model's weights stand in its files, so that its network need not hold them once more."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from pathlib import Path

import numpy as np

from trtnorm_cli.onnx_model.light_file import LARGE_BYTES, read_light
from trtnorm_cli.onnx_model.stored import file_part, is_external, reference
from trtnorm_cli.onnx_model.walk import all_tensors
from trtnorm_cli.onnx_model.wire import FilePart
from trtnorm_cli.tensorrt.network.mappings import Mappings
from trtnorm_cli.tensorrt.network.weights import TensorValues

# What tells most weights of one size apart.
_BEGINNING = 64


class Places:
    """The large tensors of the model ``path``, by what they hold. A model that refers to them must stand in the same folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files: dict[Path, np.ndarray] = {}

    def entries(self, values: TensorValues) -> dict[str, str] | None:
        """The reference to the same bytes in the model's files, as external data; None where they are nowhere.

        Bytes that TensorRT has mapped from there need not be read to know that.
        """
        wanted = values.content
        if wanted.size <= LARGE_BYTES:
            return None
        mapped = self._mappings.place(int(wanted.__array_interface__["data"][0]), wanted.size)
        if mapped is not None and (part := self._mapped_parts.get((*mapped, wanted.size))) is not None:
            return reference(part.file.name, part.offset, part.length)
        for part in self._parts.get(_key(wanted), ()):
            if np.array_equal(wanted, self._bytes(part)):
                return reference(part.file.name, part.offset, part.length)
        return None

    @cached_property
    def _mappings(self) -> Mappings:
        return Mappings()

    @cached_property
    def _mapped_parts(self) -> dict[tuple[tuple[int, int], int, int], FilePart]:
        """The large tensors of the model by file, offset and length."""
        files = {file: (found.st_dev, found.st_ino) for file in {part.file for part in self._large} if (found := file.stat())}
        return {(files[part.file], part.offset, part.length): part for part in self._large}

    @cached_property
    def _large(self) -> list[FilePart]:
        model = read_light(self._path)
        folder = self._path.parent.absolute()
        parts = [file_part(tensor, folder) for tensor in (() if model is None else all_tensors(model)) if is_external(tensor)]
        return [part for part in parts if part.length > LARGE_BYTES and part.file.parent == folder]

    @cached_property
    def _parts(self) -> dict[tuple[int, bytes], list[FilePart]]:
        found: dict[tuple[int, bytes], list[FilePart]] = defaultdict(list)
        for part in self._large:
            found[_key(self._bytes(part))].append(part)
        return found

    def _bytes(self, part: FilePart) -> np.ndarray:
        if part.file not in self._files:
            self._files[part.file] = np.memmap(part.file, np.uint8, "r")
        return self._files[part.file][part.offset : part.offset + part.length]


def _key(content: np.ndarray) -> tuple[int, bytes]:
    return content.size, content[:_BEGINNING].tobytes()
