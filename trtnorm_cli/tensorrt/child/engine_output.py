"""The engine on its way from TensorRT's builder into a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

from trtnorm_cli.files import part_of
from trtnorm_cli.tensorrt.backend import Backend


def write_engine(builder: Any, network: Any, config: Any, backend: Backend, path: Path) -> bool:
    """Build the engine and write it to ``path``, which is there once all of it is; False where TensorRT does not build it.

    Where TensorRT can, it hands the engine on in pieces, so that it is never in memory as a whole: 0.2 GB less for one of 0.35.
    Raises ``OSError`` where the file cannot be written.
    """
    part = part_of(path)
    # Who reads it meanwhile must not take what an earlier process left for the begin of this one.
    part.unlink(missing_ok=True)
    try:
        with part.open("wb") as stream:
            is_built = _built(builder, network, config, backend, stream)
            stream.flush()
            os.fsync(stream.fileno())
        if is_built:
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return is_built


def _built(builder: Any, network: Any, config: Any, backend: Backend, stream: IO[bytes]) -> bool:
    if backend.can("engine in pieces"):
        writer = _make_writer(backend.trt, stream)
        is_built = bool(builder.build_serialized_network_to_stream(network, config, writer))
        if writer.error is not None:
            raise writer.error
        return is_built
    plan = builder.build_serialized_network(network, config)
    if plan is not None:
        stream.write(memoryview(plan))
    return plan is not None


def _make_writer(trt: Any, stream: IO[bytes]) -> Any:
    """A ``trt.IStreamWriter`` into ``stream``. An exception would not come through TensorRT, so ``error`` keeps it."""

    class Writer(trt.IStreamWriter):
        def __init__(self) -> None:
            trt.IStreamWriter.__init__(self)
            self.error: OSError | None = None

        def write(self, data: bytes) -> int:
            try:
                return 0 if self.error is not None else stream.write(data)
            except OSError as error:
                self.error = error
                return 0

    return Writer()
