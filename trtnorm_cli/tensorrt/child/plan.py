"""Read out of a serialized engine, without loading it, which compute capabilities it was compiled for."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

from trtnorm_cli.light_dataclass import dataclass

_ACCELERATORS = re.compile(rb"accelerators=\{((?:sm\d+ ?)+)\}")
_FORWARD = re.compile(rb"hardware_forward_compatibility=([01])")


@dataclass(frozen=True)
class CompiledFor:
    """Compute capabilities as ``sm_86``. ``newer_too`` is true for an engine that also loads on later ones."""

    targets: tuple[str, ...]
    newer_too: bool


def compiled_for(engine: Path) -> CompiledFor | None:
    """The text that TensorRT for RTX wrote into the engine about its targets, or None where there is none.

    The text was found in the engines of releases 1.4 to 1.7, one for each optimization profile.
    """
    if engine.stat().st_size == 0:
        return None
    with engine.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        targets = _ACCELERATORS.search(content)
        forward = _FORWARD.search(content)
        if targets is None:
            return None
        names = tuple(f"sm_{name[2:]}" for name in targets[1].decode().split())
        return CompiledFor(names, forward is not None and forward[1] == b"1")
