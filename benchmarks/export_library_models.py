"""Export the modules of ``foreign_models.yaml``, or of another list, from the libraries that it names, as ONNX files.

    python benchmarks/export_library_models.py -o FOLDER [--list LIST.yaml] [--only PATTERN] [--again]

Writes NAME.onnx, a build profile NAME.yaml where sizes are dynamic, and a line of exports.jsonl for each. Runs in an
environment of its own with the libraries that the list names, and needs nothing of trtnorm. Weights are random. BatchNorms
are calibrated on random data, so that what they hold goes with their input as after training.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import importlib
import io
import json
import logging
import signal
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import onnx
import torch
import yaml
from torch import nn

LIST = Path(__file__).with_name("foreign_models.yaml")
ENVIRONMENT = ("torch", "torchvision", "timm", "transformers", "diffusers", "monai", "onnx", "onnxscript")
BATCHES, SECONDS = 4, 900


class Tensors(nn.Module):
    """A module that takes its inputs in order and returns a flat tuple of the tensors that it makes, caches left out."""

    def __init__(self, module: nn.Module, names: list[str], positional: bool, fixed: Mapping[str, Any]) -> None:
        super().__init__()
        self.module, self.names, self.positional, self.fixed = module, names, positional, dict(fixed)

    def forward(self, *data: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self.positional:
            return tuple(tensors(self.module(*data, **self.fixed)))
        return tuple(tensors(self.module(**dict(zip(self.names, data, strict=True)), **self.fixed)))


def tensors(result: Any) -> Iterator[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, Mapping):
        for name in result:
            yield from tensors(result[name])
    elif isinstance(result, (tuple, list)):
        for part in result:
            yield from tensors(part)


def resolved(path: str) -> Any:
    """What ``package.module.attribute`` names."""
    parts = path.split(".")
    for number in range(len(parts) - 1, 0, -1):
        with contextlib.suppress(ModuleNotFoundError):
            found: Any = importlib.import_module(".".join(parts[:number]))
            for attribute in parts[number:]:
                found = getattr(found, attribute)
            return found
    raise ImportError(path)


def made(entry: Mapping[str, Any]) -> nn.Module:
    """The module of an entry: what ``call`` returns for ``arguments`` and ``options``, or for a ``config`` of the options."""
    options = entry.get("options", {})
    if "config" in entry:
        built = resolved(entry["call"])(resolved(entry["config"])(**options))
    else:
        built = resolved(entry["call"])(*entry.get("arguments", []), **options)
    return getattr(built, entry["part"]) if "part" in entry else built


def sample(shape: list[Any], sizes: Mapping[str, int], how: Mapping[str, Any]) -> torch.Tensor:
    exact = [sizes.get(size, size) for size in shape]
    if "below" in how:
        return torch.randint(0, how["below"], exact)
    return torch.ones(exact, dtype=torch.int64) if how.get("ones") else torch.randn(exact)


def version_of(library: str) -> str | None:
    """The version of an installed library; None for a file beside this one."""
    with contextlib.suppress(PackageNotFoundError):
        return version(library)
    return None


def inputs_of(entry: Mapping[str, Any]) -> dict[str, tuple[list[Any], Mapping[str, Any]]]:
    described = {name: how if isinstance(how, dict) else {"shape": how} for name, how in entry["inputs"].items()}
    return {name: (how["shape"], how) for name, how in described.items()}


def randomised(module: nn.Module) -> None:
    """Parameters as after training: those of normalizations are not 0 or 1 everywhere, and no weight is 0 everywhere."""
    for child in module.modules():
        if "Norm" in type(child).__name__:
            for name, parameter in child.named_parameters(recurse=False):
                parameter.data.uniform_(0.5, 1.2) if name == "weight" else parameter.data.normal_(0, 0.2)
    for parameter in module.parameters():
        if parameter.dim() > 1 and not parameter.any():
            parameter.data.normal_(0, 0.05)


def calibrated(module: Tensors, batches: list[tuple[torch.Tensor, ...]]) -> None:
    """Running statistics of BatchNorms as the mean over ``batches``."""
    found = [child for child in module.modules() if isinstance(child, nn.modules.batchnorm._BatchNorm)]
    for child in found:
        child.reset_running_stats()
        child.momentum = None
        child.train()
    if found:
        with torch.no_grad():
            for data in batches:
                module(*data)
    module.eval()


def export(name: str, entry: Mapping[str, Any], path: Path) -> None:
    torch.manual_seed(0)
    sizes = {dim: opt for dim, (_, opt, _) in entry.get("dims", {}).items()}
    inputs = inputs_of(entry)
    module = Tensors(made(entry).eval(), list(inputs), "config" not in entry, entry.get("fixed", {})).eval()
    batches = [tuple(sample(shape, sizes, how) for shape, how in inputs.values()) for _ in range(BATCHES)]
    randomised(module)
    calibrated(module, batches)
    axes = {key: {i: s for i, s in enumerate(shape) if isinstance(s, str)} for key, (shape, _) in inputs.items()}
    common: dict[str, Any] = {"input_names": list(inputs), "opset_version": entry["opset"]}
    if entry["exporter"] == "torchscript":
        keep = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False} if entry.get("keep_norms") else {}
        used = {key: named for key, named in axes.items() if named} or None
        torch.onnx.export(module, batches[0], str(path), dynamo=False, dynamic_axes=used, **common, **keep)
        return
    shapes = {"data": tuple(axes.values())} if any(axes.values()) else None
    optimize = not entry.get("keep_norms", False)
    torch.onnx.export(
        module, batches[0], str(path), dynamo=True, dynamic_shapes=shapes, optimize=optimize, **common,
        external_data=entry.get("external_data", False),
    )  # fmt: skip


def profile(entry: Mapping[str, Any], path: Path) -> dict[str, Any] | None:
    """The build profile: the ranges of the dimensions that stayed dynamic in the file; None where all became fixed."""
    ranges, corners, dynamic = entry.get("dims", {}), {}, False
    wanted = inputs_of(entry)
    for value in onnx.load(path, load_external_data=False).graph.input:
        sizes = list(zip(value.type.tensor_type.shape.dim, wanted[value.name][0], strict=True))
        if not any(dim.dim_param for dim, _ in sizes):
            continue
        dynamic = True
        corners[value.name] = {
            corner: [ranges[size][i] if dim.dim_param else dim.dim_value for dim, size in sizes]
            for i, corner in enumerate(("min", "opt", "max"))
        }
    return {"optimization_profiles": [{"inputs": corners}]} if dynamic else None


@contextlib.contextmanager
def quiet_for(seconds: int) -> Iterator[None]:
    """Exporters talk, and some never end."""

    def too_long(*_: Any) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    logging.disable(logging.WARNING)
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        signal.alarm(0)


def one(name: str, entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Export one entry and say what came of it; whatever an exporter raises is a result."""
    path = folder / f"{name}.onnx"
    library = entry["call"].split(".")[0]
    record: dict[str, Any] = {"name": name, "package": library, "version": version_of(library), "profile": None, "failed": None}
    record["member"] = " ".join([entry["call"], *map(str, entry.get("arguments", []))])
    record["exporter"] = f"{entry['exporter']} {entry['opset']}" + (", norms kept" if entry.get("keep_norms") else "")
    start = time.monotonic()
    try:
        with quiet_for(SECONDS):
            export(name, entry, path)
            found = profile(entry, path)
    except Exception as error:
        path.unlink(missing_ok=True)
        (folder / f"{name}.log").write_text(traceback.format_exc())
        said = [line.strip() for line in str(error).splitlines() if line.strip()]
        record["failed"] = f"{type(error).__name__}: {said[0] if said else ''}"[:200]
    else:
        record["path"] = str(path)
        if found is not None:
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(found, default_flow_style=None, sort_keys=False))
            record["profile"] = str(folder / f"{name}.yaml")
    return {**record, "seconds": round(time.monotonic() - start, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--list", type=Path, default=LIST, metavar="LIST.yaml")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names as in a shell: 'timm_*'")
    parser.add_argument("--again", action="store_true", help="also what is there already")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    index = arguments.output / "exports.jsonl"
    records = {r["name"]: r for r in map(json.loads, index.read_text().splitlines())} if index.exists() else {}
    entries = yaml.safe_load(arguments.list.read_text())["exports"]
    libraries = {entry["call"].split(".")[0] for entry in entries.values()}
    numbers = {package: version(package) for package in ENVIRONMENT if package in {"torch", "onnx", "onnxscript", *libraries}}
    (arguments.output / "versions.json").write_text(json.dumps(numbers) + "\n")
    for name, entry in entries.items():
        if not fnmatch.fnmatch(name, arguments.only) or (not arguments.again and records.get(name, {}).get("path")):
            continue
        records[name] = one(name, entry, arguments.output)
        print(f"{name}: {records[name]['failed'] or 'exported'} ({records[name]['seconds']} s)", flush=True)
        index.write_text("".join(json.dumps(record) + "\n" for record in records.values()))


if __name__ == "__main__":
    main()
