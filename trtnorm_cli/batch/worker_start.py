"""The start of a worker of the local cluster, which Dask loads before it takes tasks."""

from __future__ import annotations

import os
import signal
from typing import Any

from trtnorm_cli.heap import put_off_collections
from trtnorm_cli.limits import limit_memory

_SHARE_OF_LIMIT = 0.9


def dask_setup(worker: Any) -> None:
    """Leave interrupts to the process that the user runs, and let a job without memory fail before its worker does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    put_off_collections()
    if worker.memory_manager.memory_limit:
        limit_memory(int(_SHARE_OF_LIMIT * worker.memory_manager.memory_limit))
