"""The wheels that a backend is installed from, and what does not go together of these, the driver, and the GPUs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from typing import Any

from trtnorm_cli.tensorrt.backend import BackendSpec

# What trtnorm was tried with; older releases may work.
FIRST_RELEASES = {"tensorrt": (10, 3), "tensorrt-rtx": (1, 4)}
PYTHONS = ((3, 10), (3, 13))
# Compute capabilities that TensorRT for RTX compiles for (measured on 1.7): Turing to Blackwell without Hopper.
RTX_TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_120", "sm_121")
_WHEEL = re.compile(r"(tensorrt(?:-rtx)?)(?:-cu(\d+))?(?:-(bindings|libs|lean|dispatch))?")


def wheels_of(spec: BackendSpec) -> dict[str, str]:
    """The installed distributions of a backend, name to version."""
    found = {}
    for distribution in metadata.distributions():
        name = re.sub(r"[-_.]+", "-", str(distribution.metadata["Name"])).lower()
        match = _WHEEL.fullmatch(name)
        if match is not None and match[1] == spec.name:
            found[name] = distribution.version
    return dict(sorted(found.items()))


def cuda_of(wheels: Mapping[str, str]) -> tuple[int, ...]:
    """The major CUDA versions that wheels were made for, as their names tell."""
    numbers = {match[2] for name in wheels if (match := _WHEEL.fullmatch(name)) is not None and match[2]}
    return tuple(sorted(int(number) for number in numbers))


def incompatibilities(
    backends: Sequence[Mapping[str, Any]], gpus: Sequence[Mapping[str, str]], driver_cuda: tuple[int, int] | None
) -> list[str]:
    """Problems to expect on this machine, and what to do about them.

    ``backends`` are the findings of ``trtnorm doctor`` with their ``wheels``. ``driver_cuda`` is the newest CUDA version that
    the driver runs.
    """
    found = [text for backend in backends if backend["installed"] for text in _of_backend(backend, driver_cuda)]
    asked = next((b["targets"] for b in backends if b["name"] == "tensorrt-rtx" and b.get("targets")), None)
    targets: Sequence[str] = asked or RTX_TARGETS
    return [*found, *_of_gpus(gpus, targets, driver_cuda), *_of_python()]


def _of_backend(backend: Mapping[str, Any], driver_cuda: tuple[int, int] | None) -> Iterator[str]:
    name, wheels, version = backend["name"], backend.get("wheels", {}), str(backend.get("version", ""))
    built_for = cuda_of(wheels)
    if len(built_for) > 1:
        kinds = " and ".join(f"CUDA {number}" for number in built_for)
        yield f"{name} is installed for {kinds} at once, in one folder: uninstall all of its wheels and install one"
    if len(versions := set(wheels.values())) > 1:
        listed = ", ".join(f"{wheel} {wheels[wheel]}" for wheel in wheels)
        yield f"the wheels of {name} are of {len(versions)} versions ({listed}): pip install --force-reinstall {name}"
    if driver_cuda is not None and built_for and built_for[0] > driver_cuda[0]:
        yield (
            f"{name} is made for CUDA {built_for[0]}, the driver runs CUDA {driver_cuda[0]}.{driver_cuda[1]}: engines do not "
            f"load; update the driver{_or_older_wheel(name, driver_cuda[0])}"
        )
    first = FIRST_RELEASES[name]
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers and numbers < first:
        yield f"{name} {version} is older than {'.'.join(map(str, first))}, the first that trtnorm was tried with: update it"


def _or_older_wheel(name: str, cuda: int) -> str:
    return f", or pip install tensorrt-cu{cuda}" if name == "tensorrt" else ""


def _of_gpus(gpus: Sequence[Mapping[str, str]], targets: Sequence[str], driver_cuda: tuple[int, int] | None) -> Iterator[str]:
    if not gpus:
        yield "there is no NVIDIA GPU (or no driver): engines can be built with tensorrt-rtx, but not loaded or run"
    for gpu in gpus:
        if f"sm_{gpu['compute_cap'].replace('.', '')}" not in targets:
            wheel = f"tensorrt-cu{driver_cuda[0]}" if driver_cuda is not None else "'trtnorm[tensorrt]'"
            yield (
                f"{gpu['name']} has compute capability {gpu['compute_cap']}, for which tensorrt-rtx does not compile; "
                f"use the backend tensorrt there: pip install {wheel}"
            )


def _of_python() -> Iterator[str]:
    oldest, newest = PYTHONS
    if not oldest <= sys.version_info[:2] <= newest:
        tried = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
        yield f"trtnorm is tried with Python {tried}, and this is {sys.version_info[0]}.{sys.version_info[1]}"
