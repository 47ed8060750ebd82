"""The findings of ``trtnorm doctor``, as text."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from trtnorm_cli.report.console import table


def print_findings(out: Console, found: dict[str, Any]) -> None:
    """Versions, GPUs, backends, and what stands in the way."""
    out.print(f"trtnorm {found['trtnorm']}, Python {found['python']}, {found['platform']}")
    packages = [f"{name} {version or '-'}" for name, version in found["packages"].items()]
    out.print(f"packages: {', '.join(packages)}")
    if found["driver_cuda"] is not None:
        out.print(f"the driver runs CUDA {found['driver_cuda']}")
    for gpu in found["gpus"]:
        out.print(f"GPU: {gpu['name']}, compute capability {gpu['compute_cap']}, driver {gpu['driver_version']}")
    rows = [(b["name"], b.get("version", "-"), "yes" if b["can_build"] else "no", _remark(b)) for b in found["backends"]]
    out.print(table("", ("backend", "version", "builds here", "remark"), rows), new_line_start=True)
    for problem in found["problems"]:
        out.print(f"note: {problem}")


def _remark(backend: dict[str, Any]) -> str:
    if not backend["installed"]:
        return f"{backend['install']} (needs {backend['needs']})"
    if not backend["can_build"]:
        return str(backend["reason"])
    targets = ", ".join(backend["targets"])
    builds_for = f"compiles for {targets}" if targets else "builds for the GPU of this machine"
    lacks = f"; not here: builder.{', '.join(backend['lacks'])}" if backend["lacks"] else ""
    return f"{builds_for}; types follow the model{lacks}"
