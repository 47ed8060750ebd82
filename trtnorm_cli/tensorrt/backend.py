"""One handle of the ``trt`` module for TensorRT 10, TensorRT 11 and TensorRT for RTX, with what each of them can do.

Only the child process that builds imports TensorRT. The parent asks ``installed`` which of them exist.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.tensorrt.capabilities import NAMES as CAPABILITY_NAMES
from trtnorm_cli.tensorrt.capabilities import capabilities_of


@dataclass(frozen=True)
class BackendSpec:
    """A Python package that builds TensorRT engines, and how a user gets it."""

    name: str
    module: str
    install: str
    needs: str


SPECS = (
    BackendSpec("tensorrt", "tensorrt", "pip install 'trtnorm[tensorrt]'", "an NVIDIA GPU and driver, also to build"),
    BackendSpec("tensorrt-rtx", "tensorrt_rtx", "pip install 'trtnorm[rtx]'", "no GPU to build; an RTX GPU to run"),
)
NAMES = tuple(spec.name for spec in SPECS)


@dataclass(frozen=True)
class Backend:
    """A loaded backend. ``skipped`` tells why a backend that stands earlier in the order was not taken."""

    name: str
    trt: ModuleType
    skipped: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        return str(self.trt.__version__)

    def can(self, capability: str) -> bool:
        """True where this TensorRT has the capability of that name. ``capabilities`` lists them."""
        if capability not in CAPABILITY_NAMES:
            raise KeyError(capability)
        return capability in self.capabilities

    @property
    def capabilities(self) -> frozenset[str]:
        return capabilities_of(self.trt)

    @property
    def targets(self) -> tuple[str, ...]:
        """The compute capabilities that it compiles for ahead of time, as ``sm_86``. Empty where it builds for its own GPU."""
        if not self.can("targets"):
            return ()
        names = (name for name in self.trt.ComputeCapability.__members__ if name.startswith("SM"))
        return tuple(f"sm_{number}" for number in sorted(int(name[2:]) for name in names))

    def network_flags(self) -> int:
        """The flags for ``create_network``, with explicit batch where it is still a choice, and strong typing everywhere."""
        flags = 0
        if self.can("explicit batch flag"):
            flags |= 1 << int(self.trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
        if self.can("strong typing flag"):
            flags |= 1 << int(self.trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        return flags


def spec_named(name: str) -> BackendSpec:
    """The backend called ``name``. Raises ``UsageProblem`` with the valid names otherwise."""
    for spec in SPECS:
        if name in (spec.name, spec.module):
            return spec
    raise UsageProblem(f"there is no backend named {name!r}", hint=f"choose one of: {', '.join(NAMES)}")


def installed() -> tuple[BackendSpec, ...]:
    """The backends whose Python package is present, in order of preference. Imports nothing."""
    return tuple(spec for spec in SPECS if importlib.util.find_spec(spec.module) is not None)


def first_installed(name: str | None) -> str | None:
    """The backend that ``load_backend`` will try first."""
    candidates = installed() if name is None else (spec_named(name),)
    return candidates[0].name if candidates else None


def require_backend(name: str | None) -> None:
    """Raise ``UsageProblem`` naming the install commands when the wanted backend (or any) is not installed."""
    wanted = SPECS if name is None else (spec_named(name),)
    if any(spec in installed() for spec in wanted):
        return
    summary = "no TensorRT is installed" if name is None else f"the backend {wanted[0].name} is not installed"
    hint = "\n".join(f"{spec.install}    # {spec.name}: needs {spec.needs}" for spec in wanted)
    raise UsageProblem(summary, hint=hint)


def load_backend(name: str | None = None) -> Backend:
    """Import the package that ``name`` asks for, or else ``tensorrt`` if it can be imported, or else ``tensorrt_rtx``.

    Raises ``UsageProblem`` when nothing fits, with the reason for each package that is present but does not import.
    """
    require_backend(name)
    candidates = installed() if name is None else (spec_named(name),)
    skipped: list[str] = []
    for spec in candidates:
        try:
            return Backend(spec.name, importlib.import_module(spec.module), tuple(skipped))
        except (ImportError, OSError, RuntimeError) as error:
            skipped.append(f"{spec.name} is installed but cannot be imported: {error}")
    raise UsageProblem("no TensorRT can be imported", where="\n".join(skipped), hint="\n".join(s.install for s in SPECS))
