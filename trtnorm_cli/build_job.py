"""One build while it runs: what the user asked for, where its files are, and how long its steps take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import onnx

from trtnorm_cli.child_process import Limits
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.limits import available_memory
from trtnorm_cli.onnx_model.save import SINGLE_FILE_LIMIT
from trtnorm_cli.profile.rewriting import Optimize
from trtnorm_cli.progress import stage
from trtnorm_cli.records.cost import EngineCostRecord
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.rewrite.rewriting import Rewriter, Rewriting
from trtnorm_cli.side_work import SideWork
from trtnorm_cli.tensorrt.build_request import request_for
from trtnorm_cli.tensorrt.estimates import estimated
from trtnorm_cli.tensorrt.launch import EventHandler, launch
from trtnorm_cli.tensorrt.origin import Subject
from trtnorm_cli.tensorrt.request import NETWORK_FILE, BuildRequest, BuildResult
from trtnorm_cli.tensorrt.variants import VariantBuilder

if TYPE_CHECKING:
    from trtnorm_cli.compare.result import Comparison

_STEPS = ("rewrite", "types", "precision", "variants", "parse", "build", "reproducible", "compare")
# A comparison may take this share of TensorRT's own time, within bounds.
_SHARE_OF_TENSORRT, _LEAST_COMPARISON_S, _MOST_COMPARISON_S = 0.25, 1.0, 8.0
# Processes that work on a model at once take this many times its size, of this share of the memory that there is. TensorRT took
# four times the size of models of 0.1 to 0.5 GB, of which it may build two engines at once. Of one of 2.6 GB, whose weights it
# maps and of which it builds one, it took twice the size, and what is compared meanwhile 1.7 GB.
_COPIES, _COPIES_OF_LARGE, _MEMORY_SHARE = 12, 4, 0.75


@dataclass(frozen=True)
class BuildOptions:
    """The options of a build, as the command line gives them."""

    backend: str | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None
    check_reproducible: bool = False
    isolate: bool = False
    compare: bool = True
    seed: int = 0
    require_compare: bool = False

    def __post_init__(self) -> None:
        if self.require_compare and not self.compare:
            raise UsageProblem("--no-compare and --require-compare contradict each other", hint="leave out one of them")


@dataclass
class Stopwatch:
    """Wall time in seconds by step, each a stage of the command. Steps may overlap."""

    seconds: dict[str, float] = field(default_factory=dict)

    def in_order(self) -> dict[str, float]:
        """The steps in the order of the pipeline, whichever began first."""
        return {name: self.seconds[name] for name in _STEPS if name in self.seconds}

    @contextmanager
    def time(self, name: str, called: str | None = None) -> Iterator[None]:
        """A block that is part of the step ``name``, and a stage of that name or as it is ``called``."""
        start = time.perf_counter()
        with stage(called or name):
            yield
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)


@dataclass
class Duration:
    """The seconds that something takes: so far while it goes on, none before."""

    _start: float | None = None
    _end: float | None = None

    @property
    def seconds(self) -> float:
        if self._start is None:
            return 0.0
        return (time.perf_counter() if self._end is None else self._end) - self._start

    @contextmanager
    def measured(self) -> Iterator[None]:
        self._start = time.perf_counter()
        try:
            yield
        finally:
            self._end = time.perf_counter()


def comparison_budget_s(tensorrt: Duration) -> float:
    """The processor's seconds that a comparison may take at shapes beyond the smallest, after what TensorRT took."""
    return min(max(_SHARE_OF_TENSORRT * tensorrt.seconds, _LEAST_COMPARISON_S), _MOST_COMPARISON_S)


class Findings(Protocol):
    """Findings that builds of one model share, wherever they run."""

    def comparison(self, made_from: str, compare: Callable[[], Comparison]) -> Comparison:
        """The comparison of what has this digest: one that was made before, or that ``compare`` makes."""


@dataclass(frozen=True)
class Job:
    """One build: what is built, how, and where. ``work`` is private to it, ``beside`` a folder on the disk of ``engine``.

    ``findings`` are shared with other builds, where there are any.
    """

    prepared: Prepared
    engine: Path
    options: BuildOptions
    work: Path
    beside: Path
    session: Rewriter
    clock: Stopwatch
    side: SideWork
    findings: Findings | None = None
    _estimates: dict[int, tuple[BuildResult, EngineCostRecord | None]] = field(default_factory=dict)

    @property
    def built(self) -> Path:
        """The place of the engine until it gets its name."""
        return self.beside / self.engine.name

    @property
    def unchanged(self) -> Path:
        """Where the engine of the model without optional changes is, should it be the one that is wanted."""
        return self.beside / "unchanged.engine"

    @property
    def limits(self) -> Limits:
        return Limits(self.options.timeout_s, self.options.memory_bytes)

    @property
    def policy(self) -> Optimize:
        return self.session.settings.optimize

    def subject(self, rewriting: Rewriting) -> Subject:
        """The user's model, for messages about nodes that ``rewriting`` made."""
        loaded = self.prepared.loaded
        return Subject(loaded.path, self.prepared.profile_path, loaded.proto, rewriting.changes)

    def request(self, engine: Path) -> BuildRequest:
        """The request to build ``engine``, but for the model."""
        return request_for(self.prepared, self.options.backend, engine)

    def variants(self, keeps: bool = False) -> VariantBuilder:
        """The builder of engines that are only looked at. It ``keeps`` them for a build that may choose one."""
        kept_in = self.beside if keeps and not self.options.check_reproducible else None
        network = NETWORK_FILE if self.options.compare and not self.options.check_reproducible else None
        return VariantBuilder(self.work, self.request(self.built), self.estimated, self.limits, kept_in, network)

    def estimated(self, result: BuildResult, model: onnx.ModelProto) -> EngineCostRecord | None:
        """The estimated cost of the engine that was built from ``model``, found out once."""
        if id(result) not in self._estimates:
            self._estimates[id(result)] = result, estimated(result, model, self.prepared)
        return self._estimates[id(result)][1]

    def run(self, request: BuildRequest, folder: Path, listen: EventHandler | None = None) -> BuildResult:
        """Run one build process in ``folder``."""
        if self.options.check_reproducible:
            return launch(request, folder, listen, self.limits, is_repeatable=True)
        return launch(request, folder, listen, self.limits)


def has_room(prepared: Prepared, memory_bytes: int | None = None) -> bool:
    """True where several processes may work on the model at once.

    ``memory_bytes`` is what each may have at most, where that is limited.
    """
    share = _MEMORY_SHARE * available_memory()
    size = model_bytes(prepared)
    copies = _COPIES if size <= SINGLE_FILE_LIMIT else _COPIES_OF_LARGE
    return copies * size < (share if memory_bytes is None else min(share, memory_bytes))


def model_bytes(prepared: Prepared) -> int:
    """The size of the model's files."""
    return sum(file.stat().st_size for file in (prepared.loaded.path, *prepared.loaded.data_files))
