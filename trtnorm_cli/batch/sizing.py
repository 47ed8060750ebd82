"""How many jobs at once: by cores, and by the memory that models need, that builds may take, and that a worker has.

It is one calculation. The memory that is free is divided among the workers. A worker may take its share, and so may each
process of its builds (``--memory`` of a build), and a model counts with what its builds need at least.
"""

from __future__ import annotations

from collections.abc import Iterable

from trtnorm_cli.batch.inputs import Inputs
from trtnorm_cli.cores import usable_cores
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.limits import available_memory

# A worker with its imports, ONNX Runtime and TensorRT, working on a model without weights.
BASE_BYTES = 1 << 30
# The model in memory while its processes work one after the other.
LEAST_COPIES = 4
# Of what is free: the rest is for the scheduler, and for whatever else the machine does.
_SHARE = 0.9
_CORES_EACH = 2
# Seconds of a build of which nothing is known: its processes, and each MiB of weights.
_START_S, _PER_MIB_S = 1.5, 0.06


@dataclass(frozen=True)
class Slots:
    """``workers`` that each work on one job, with ``memory`` bytes each."""

    workers: int
    memory: int


def memory_needed(inputs: Inputs) -> int:
    """The memory that a job needs at least, by the size of its model."""
    return BASE_BYTES + LEAST_COPIES * inputs.bytes


def slots_for(
    needs: Iterable[int], asked: int | None, memory: int | None, free: int | None = None, cores: int | None = None
) -> Slots:
    """The workers of a local cluster. ``asked`` is their number where the user says it, and ``memory`` of each job."""
    wanted = list(needs)
    usable = int(_SHARE * (available_memory() if free is None else free))
    each = memory or max(wanted, default=BASE_BYTES)
    by_memory = max(usable // max(each, 1), 1)
    by_cores = max((cores or usable_cores()) // _CORES_EACH, 1)
    number = asked or max(min(by_cores, by_memory, len(wanted)), 1)
    return Slots(number, memory or usable // number)


def expected_s(inputs: Inputs, known: float | None) -> float:
    """The seconds that a build will take: what one like it took last, else by the size of the model."""
    return known if known is not None else _START_S + _PER_MIB_S * inputs.bytes / 2**20
