"""The files that this process has mapped, and where an address lies in them."""

from __future__ import annotations

import os
from bisect import bisect_right
from pathlib import Path

from trtnorm_cli.light_dataclass import dataclass

_MAPS = Path("/proc/self/maps")


@dataclass(frozen=True)
class _Mapping:
    """Addresses from ``start`` to ``end``, with the device, inode and offset of the file behind them."""

    start: int
    end: int
    file: tuple[int, int]
    offset: int


class Mappings:
    """The mappings of files that nobody in this process can write to, as they are when this is made."""

    def __init__(self) -> None:
        try:
            lines = _MAPS.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:  # a system that does not tell
            lines = []
        self._found = [mapping for line in lines if (mapping := _mapping(line)) is not None]
        self._starts = [mapping.start for mapping in self._found]

    def place(self, address: int, length: int) -> tuple[tuple[int, int], int] | None:
        """Device and inode of the file that ``length`` bytes at ``address`` are mapped from, and their offset in it."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address + length > self._found[index].end:
            return None
        mapping = self._found[index]
        return mapping.file, mapping.offset + address - mapping.start


def _mapping(line: str) -> _Mapping | None:
    """The mapping of a line as ``7f00-7f10 r--s 00001000 fe:00 1234  /a/file``; None where no file is behind it."""
    addresses, rights, offset, device, inode, *_ = line.split(maxsplit=5)
    if "w" in rights or inode == "0":
        return None
    start, end = (int(address, 16) for address in addresses.split("-"))
    major, minor = (int(number, 16) for number in device.split(":"))
    return _Mapping(start, end, (os.makedev(major, minor), int(inode)), int(offset, 16))
