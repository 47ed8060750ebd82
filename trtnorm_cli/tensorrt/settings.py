"""The ``builder:`` settings of a build profile, with what each needs, how it is applied, and what to do where it is missing.

One row of ``SETTINGS`` a key. A setting that the backend lacks is an error that names the alternative. One that has no effect
there gives a note that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from trtnorm_cli.light_dataclass import dataclass

Apply = Callable[[Any, Any, Any], None]


@dataclass(frozen=True)
class Setting:
    """One key. ``apply(config, value, trt)`` carries it over.

    ``needs`` is the capability without which it cannot be had, ``needs_for`` that of single values, and ``instead`` what to do
    then. Where ``harmless`` is given, the setting only changes how a build goes, never the engine. A backend that lacks it
    ignores it, and that sentence says so.
    """

    key: str
    apply: Apply
    needs: str = ""
    instead: str = ""
    harmless: str = ""
    needs_for: Mapping[object, str] = field(default_factory=dict)

    def lacks(self, value: object, capabilities: frozenset[str]) -> bool:
        """True where ``value`` needs a capability that is not among ``capabilities``."""
        needed = {self.needs, self.needs_for.get(value, "") if self.needs_for else ""}
        return any(name and name not in capabilities for name in needed)


@dataclass(frozen=True)
class Fault:
    """A setting that the backend does not take, with its key, what is wrong, and what to do instead."""

    key: str
    message: str
    instead: str


def _optimization_level(config: Any, value: int, trt: Any) -> None:
    config.builder_optimization_level = value


def _workspace(config: Any, value: int, trt: Any) -> None:
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, value)


def _tiling(config: Any, value: str, trt: Any) -> None:
    config.tiling_optimization_level = getattr(trt.TilingOptimizationLevel, value.upper())


def _l2_limit(config: Any, value: int, trt: Any) -> None:
    config.l2_limit_for_tiling = value


def _max_aux_streams(config: Any, value: int, trt: Any) -> None:
    config.max_aux_streams = value


def _hardware_compatibility(config: Any, value: str, trt: Any) -> None:
    config.hardware_compatibility_level = getattr(trt.HardwareCompatibilityLevel, value.upper())


def _profiling_verbosity(config: Any, value: str, trt: Any) -> None:
    config.profiling_verbosity = getattr(trt.ProfilingVerbosity, value.upper())


def _targets(config: Any, value: list[str], trt: Any) -> None:
    config.num_compute_capabilities = len(value)
    for index, target in enumerate(value):
        if not config.set_compute_capability(getattr(trt.ComputeCapability, _member(target)), index):
            raise ValueError(f"TensorRT does not take the compute capability {target}")


def _nothing(config: Any, value: Any, trt: Any) -> None:
    """Apply nothing. The timing cache is a file, which the worker opens before the build and writes after."""


def _flag(name: str) -> Apply:
    def apply(config: Any, value: bool, trt: Any) -> None:
        flag = getattr(trt.BuilderFlag, name)
        if value:
            config.set_flag(flag)
        else:
            config.clear_flag(flag)

    return apply


_NEWER_TENSORRT = "leave it out, or use TensorRT 10.9 or newer, or tensorrt-rtx"
SETTINGS = (
    Setting("optimization_level", _optimization_level),
    Setting("workspace", _workspace),
    Setting("tiling", _tiling, needs="tiling", instead=_NEWER_TENSORRT),
    Setting("l2_limit", _l2_limit, needs="tiling", instead=_NEWER_TENSORRT),
    Setting("max_aux_streams", _max_aux_streams),
    Setting("tf32", _flag("TF32")),
    Setting("sparse_weights", _flag("SPARSE_WEIGHTS")),
    Setting("refit", _flag("REFIT")),
    Setting("refit_identical", _flag("REFIT_IDENTICAL")),
    Setting("strip_plan", _flag("STRIP_PLAN")),
    Setting(
        "version_compatible",
        _flag("VERSION_COMPATIBLE"),
        instead="add 'exclude_lean_runtime: true': the engine is then version-compatible without a runtime of its own, which "
        "this backend does not come with",
    ),
    Setting("exclude_lean_runtime", _flag("EXCLUDE_LEAN_RUNTIME")),
    Setting(
        "hardware_compatibility",
        _hardware_compatibility,
        needs="hardware compatibility",
        needs_for={"same_compute_capability": "same compute capability"},
        instead="name the compute capabilities instead: 'targets: [sm_86, sm_89, sm_120]'; where the backend is an older "
        "tensorrt, 'ampere_plus' is what it has",
    ),
    Setting("weight_streaming", _flag("WEIGHT_STREAMING")),
    Setting("profiling_verbosity", _profiling_verbosity),
    Setting(
        "timing_cache",
        _nothing,
        needs="timing cache",
        harmless="this backend times nothing when it builds, so a timing cache has no effect; it is neither read nor written",
    ),
    Setting(
        "targets",
        _targets,
        needs="targets",
        instead="TensorRT builds for the GPU of the machine it runs on: build on such a GPU, or give "
        "'hardware_compatibility: ampere_plus' for an engine that runs on newer ones too, or use the backend tensorrt-rtx",
    ),
)
KEYS = tuple(setting.key for setting in SETTINGS)
_DEFAULTS = {"profiling_verbosity": "detailed"}


def faults_of(settings: Mapping[str, Any], name: str, capabilities: frozenset[str], targets: tuple[str, ...]) -> list[Fault]:
    """Each of ``settings`` that the backend ``name`` does not take. ``targets`` are what it compiles for."""
    faults = [
        Fault(row.key, f"{name} does not have {row.key}{_valued(row, settings)}", row.instead)
        for row in SETTINGS
        if row.key in settings and not row.harmless and row.lacks(settings[row.key], capabilities)
    ]
    if settings.get("version_compatible") and not settings.get("exclude_lean_runtime") and "lean runtime" not in capabilities:
        row = next(row for row in SETTINGS if row.key == "version_compatible")
        faults.append(Fault(row.key, f"{name} comes without the lean runtime, libnvinfer_lean", row.instead))
    if "targets" in capabilities:
        faults += _target_faults(settings.get("targets", ()), name, targets)
    return faults


def notes_of(settings: Mapping[str, Any], name: str, capabilities: frozenset[str]) -> list[str]:
    """A sentence for each of ``settings`` that has no effect with the backend ``name``."""
    return [
        f"builder.{row.key} is ignored by {name}: {row.harmless}"
        for row in SETTINGS
        if row.key in settings and row.harmless and row.lacks(settings[row.key], capabilities)
    ]


def apply_settings(config: Any, settings: Mapping[str, Any], trt: Any) -> None:
    """Carry ``settings`` over to TensorRT's ``config``, in the order of the table.

    Raises ``ValueError`` for a key that is not in the table, and for a value that TensorRT does not take.
    """
    wanted = {**_DEFAULTS, **settings}
    if unknown := wanted.keys() - set(KEYS):
        raise ValueError(f"there is no builder setting named {', '.join(sorted(unknown))}")
    for row in SETTINGS:
        if row.key in wanted:
            row.apply(config, wanted[row.key], trt)


def _valued(row: Setting, settings: Mapping[str, Any]) -> str:
    return f": {settings[row.key]}" if row.needs_for else ""


def _target_faults(wanted: Any, name: str, targets: tuple[str, ...]) -> list[Fault]:
    return [
        Fault("targets", f"{name} does not compile for {target}", f"it compiles for {', '.join(targets)}")
        for target in wanted
        if target not in targets
    ]


def _member(target: str) -> str:
    """The member of ``trt.ComputeCapability`` for a target such as ``sm_86``."""
    return target.upper().replace("_", "")
