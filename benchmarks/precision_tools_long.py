"""Half precision and bfloat16 by trtnorm and by other tools: errors, casts, kernels, on models of other people.

    python -m benchmarks.precision_tools measure --exports FOLDER --peers ENVIRONMENT -o FILE.json [--only NAME] [--tools NAMES]
    python -m benchmarks.precision_tools page FILE.json... PAGE.md

``--exports`` is a folder that export_library_models.py (once more with ``--list speed_models.yaml --only resnet50``) and
precision_samples.py filled; ``--peers`` an environment with onnxconverter-common and nvidia-modelopt[onnx]. What stands in the
file already is not measured again. Each tool converts the same file; its result is parsed by TensorRT, whose network is
evaluated on the CPU with each layer's output rounded to its type, and compared with the float32 model in ONNX Runtime. Nothing
runs on a GPU. Inputs are random ones at the opt shape of the profile, and three more that nobody calibrated on: images of 0 to
255 (where the profile says nothing else), a constant row (the first sample's values all alike) and a fully masked row (integer
masks of the first sample 0).
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.foreign_corpus import Source
from benchmarks.foreign_models import corners
from benchmarks.precision_models import planted
from benchmarks.precision_result import described
from trtnorm_cli.child_process import Limits
from trtnorm_cli.compare.participants import loaded_network, loaded_participant
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.compare.trials import trials_of
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.evaluate.metrics import distance
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest

TOOLS = ("blind", "onnxconverter-common", "autocast", "autocast with data", "trtnorm")
KINDS = ("fp16", "bf16")
MODELS = (
    *("nafnet", "llama_rmsnorm", "style_transfer_instancenorm", "unet_groupnorm", "unet3d_batchnorm", "vit_layernorm"),
    *("timm_convnext_atto_t", "timm_swin_tiny_t", "timm_vit_tiny_t", "transformers_bert", "transformers_llama"),
    *("resnet50", "timm_resnet18_kept", "timm_efficientnet_b0_kept", "torchvision_fcn_resnet50_kept"),
    *("monai_segresnet", "diffusers_vae_decoder", "optical_flow_instancenorm", "resnet18_batchnorm"),
)
PLANTED = (
    *("nafnet", "style_transfer_instancenorm", "unet_groupnorm", "timm_swin_tiny_t", "transformers_bert"),
    *("timm_resnet18_kept", "timm_efficientnet_b0_kept"),
)
PEERS = Path(__file__).with_name("precision_peers.py")
TIMEOUT_S = 1500
TOO_LONG = f"more than {TIMEOUT_S} s"


@dataclass(frozen=True)
class Case:
    """One float32 model with its profile, and the inputs that results are judged on by name."""

    name: str
    path: Path
    profile: Path | None
    feeds: Mapping[str, Mapping[str, np.ndarray]]


def cases(exports: Path, folder: Path, only: str) -> Iterator[Case]:
    """The models, each as it is and with planted ranges."""
    for name in MODELS:
        path = exports / f"{name}.onnx"
        if not path.exists():
            continue
        copies = {name: onnx.load(path)}
        if name in PLANTED and (wide := planted(copies[name])) is not None:
            copies[f"{name}, planted"] = wide
        for label, model in copies.items():
            if fnmatch.fnmatch(label, only):
                file = folder / f"{label.replace(', ', '_')}.onnx"
                onnx.save(model, file)
                profile = path.with_suffix(".yaml")
                yield _case(label, file, profile if profile.exists() else None)


def _case(name: str, path: Path, profile: Path | None) -> Case:
    described = loaded_participant(load_model(path))
    read = None if profile is None else load_profile(profile)
    drawn = trials_of(described, read, Settings(in_between=0))
    opt = next((trial for trial in drawn.trials if "opt" in trial.label), drawn.trials[0])
    return Case(name, path, profile, dict(_variations(opt.feeds, set() if read is None else read.data.keys())))


def _variations(feeds: Mapping[str, np.ndarray], told: Collection[str]) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """The inputs, and others. Where the profile has ``told`` what an input holds, it holds no pixels of 0 to 255."""
    yield "random", dict(feeds)
    floats = [name for name, value in feeds.items() if value.dtype == np.float32]
    images = [name for name in floats if feeds[name].ndim > 3 and name not in told]
    if images:
        rng = np.random.default_rng(7)
        yield "0 to 255", {**feeds, **{n: (255 * rng.random(feeds[n].shape)).astype(np.float32) for n in images}}
    if floats:
        yield "constant row", {**feeds, **{n: np.concatenate([np.full_like(feeds[n][:1], 0.5), feeds[n][1:]]) for n in floats}}
    masks = [name for name, value in feeds.items() if "mask" in name and value.ndim]
    if masks:
        yield (
            "masked row",
            {
                **feeds,
                **{n: np.concatenate([np.zeros_like(feeds[n][:1]), feeds[n][1:]]) for n in masks},
            },
        )


def measure(case: Case, tool: str, kind: str, peers: Path, folder: Path) -> dict[str, Any]:
    """What ``tool`` makes of the model, and what TensorRT makes of that."""
    out = folder / "out.onnx"
    out.unlink(missing_ok=True)
    begin = time.perf_counter()
    failure = _converted(case, tool, kind, peers, out)
    seconds = round(time.perf_counter() - begin, 1)
    if failure or not out.exists():
        return {"failed": failure or "no file", "seconds": seconds}
    found = {"seconds": seconds, **described(out), **_built(case, out, folder), "errors": _errors(case, out, folder)}
    return {**found, "onnxruntime": _in_onnxruntime(case, out)}


def _converted(case: Case, tool: str, kind: str, peers: Path, out: Path) -> str:
    if tool == "trtnorm":
        profile = [] if case.profile is None else ["-p", str(case.profile)]
        command = [sys.executable, "-m", "benchmarks.precision_tools_long", "convert", str(case.path), kind, str(out), *profile]
    else:
        name = tool.split()[0]
        data = out.with_name("data.npz")
        np.savez(data, **case.feeds["random"])
        command = [str(peers / "bin/python"), str(PEERS), name, kind, str(case.path), str(out)]
        command += [str(data)] if tool.endswith("with data") else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return TOO_LONG
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["died"])[-1][:300]


def _built(case: Case, out: Path, folder: Path) -> dict[str, Any]:
    source = Source(out.stem, out, "", "", "", case.profile)
    ranges = corners(source, onnx.load(out, load_external_data=False))
    with tempfile.TemporaryDirectory(dir=folder) as work:
        request = BuildRequest(
            str(out.absolute()), str(Path(work) / "m.engine"), "tensorrt-rtx", (ranges,) if ranges else (),
            {"profiling_verbosity": "detailed"},
        )  # fmt: skip
        try:
            result = launch(request, Path(work), lambda event: None, Limits(TIMEOUT_S))
        except TrtnormError as error:
            return {"refused": error.summary}
    if not result.ok:
        return {"refused": "; ".join(message.text for message in result.errors)[:300]}
    return {"kernels": len(launched(result.kernels)), "engine_bytes": result.engine_bytes}


def _errors(case: Case, out: Path, folder: Path) -> dict[str, Any]:
    """The largest relative L2 error over outputs by inputs, in TensorRT's network; and what is not finite."""
    try:
        network = loaded_network(load_model(out), Path(tempfile.mkdtemp(dir=folder)), "tensorrt-rtx")
    except TrtnormError as error:
        return {"network": error.summary}
    found: dict[str, Any] = {}
    kinds = network.inputs()
    with OrtRunner() as runner:
        for label, feeds in case.feeds.items():
            exact = runner.run(case.path, feeds)
            fed = {n: v.astype(onnx.helper.tensor_dtype_to_np_dtype(kinds[n].dtype)) for n, v in feeds.items() if n in kinds}
            try:
                got = runner.run(network.path, fed)
            except RunFailed as error:
                found[label] = str(error)[:200]
                continue
            wanted = {name: value for name, value in exact.items() if value.dtype == np.float32 and value.size}
            found[label] = max((distance(value, got[name]).relative_l2 for name, value in wanted.items()), default=0.0)
    return found


def _in_onnxruntime(case: Case, out: Path) -> float | str:
    """The largest relative L2 error for the random inputs as ONNX Runtime runs the file, or why it does not."""
    kinds = model_inputs(onnx.load(out, load_external_data=False))
    feeds = {
        name: value.astype(onnx.helper.tensor_dtype_to_np_dtype(kinds[name].dtype))
        for name, value in case.feeds["random"].items()
        if name in kinds
    }
    with OrtRunner() as runner:
        exact = runner.run(case.path, case.feeds["random"])
        try:
            got = runner.run(out, feeds)
        except RunFailed as error:
            return str(error)[:200]
    wanted = {name: value for name, value in exact.items() if value.dtype == np.float32 and value.size}
    return max((distance(value, got[name].astype(np.float32)).relative_l2 for name, value in wanted.items()), default=0.0)


def convert(path: Path, kind: str, out: Path, profile: Path | None) -> None:
    """What a build of trtnorm hands to TensorRT's builder."""
    from trtnorm_cli.build_job import BuildOptions
    from trtnorm_cli.engine_making import lowered_variant
    from trtnorm_cli.export.opening import opened_model
    from trtnorm_cli.export.options import ExportOptions
    from trtnorm_cli.onnx_model.save import save_model
    from trtnorm_cli.pipeline import started
    from trtnorm_cli.rewrite.prepare import prepare
    from trtnorm_cli.side_work import SideWork
    from trtnorm_cli.target import parse_model
    from trtnorm_cli.variant_choice import first_variant

    with (
        tempfile.TemporaryDirectory() as folder,
        opened_model(parse_model(str(path)), profile, ExportOptions(), precision=None if kind == "float32" else kind) as opened,
        SideWork(is_beside=False) as side,
    ):
        prepared, work = prepare(opened), Path(folder)
        job = started(prepared, work / "m.engine", BuildOptions(), work, work, side)
        variant = first_variant(job)
        variant.rewriting.require_all_checks_passed()
        made = lowered_variant(job, variant)
        rewriting = variant.rewriting if made is None else made.rewriting
        save_model(rewriting.model, out, rewriting.folder)


def _in_float32(case: Case, folder: Path) -> dict[str, Any]:
    """The engine of the model as it is, or of what trtnorm makes of it where TensorRT's parser refuses that."""
    found = {**_built(case, case.path, folder), **described(case.path)}
    if "refused" in found:
        out = folder / "float32.onnx"
        convert(case.path, "float32", out, case.profile)
        found = {**_built(case, out, folder), **described(out), "as_is": found["refused"]}
    return found


def run(exports: Path, peers: Path, output: Path, only: str, tools: str) -> None:
    known: dict[str, Any] = json.loads(output.read_text()) if output.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        for case in cases(exports, Path(name), only):
            rows = known.setdefault(case.name, {})
            if "float32" not in rows:
                rows["float32"] = _in_float32(case, Path(name))
            for kind in KINDS:
                for tool in (tool for tool in TOOLS if any(fnmatch.fnmatch(f"{tool} {kind}", one) for one in tools.split(","))):
                    if f"{tool} {kind}" in rows or (tool == "onnxconverter-common" and kind == "bf16"):
                        continue
                    row = measure(case, tool, kind, peers, Path(name))
                    if row.get("failed") == TOO_LONG:  # a busy machine is no property of the tool
                        print(case.name, tool, kind, TOO_LONG, flush=True)
                        continue
                    rows[f"{tool} {kind}"] = row
                    print(case.name, tool, kind, json.dumps(rows[f"{tool} {kind}"]), flush=True)
                    output.write_text(json.dumps(known, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="what", required=True)
    one = parts.add_parser("measure")
    one.add_argument("--exports", type=Path, required=True)
    one.add_argument("--peers", type=Path, required=True)
    one.add_argument("--only", default="*")
    one.add_argument("--tools", default="*", help='patterns of tool and type, such as "autocast fp16,blind *"')
    one.add_argument("-o", "--output", type=Path, required=True)
    two = parts.add_parser("page")
    two.add_argument("found", type=Path, nargs="+", help="files of measurements; rows of later ones take the place of earlier")
    two.add_argument("page", type=Path)
    three = parts.add_parser("convert")
    three.add_argument("model", type=Path)
    three.add_argument("kind")
    three.add_argument("out", type=Path)
    three.add_argument("-p", "--profile", type=Path)
    given = parser.parse_args()
    if given.what == "measure":
        run(given.exports, given.peers, given.output, given.only, given.tools)
    elif given.what == "convert":
        convert(given.model, given.kind, given.out, given.profile)
    else:
        from benchmarks.precision_page import merged, page

        given.page.write_text(page(merged(json.loads(file.read_text()) for file in given.found)), encoding="utf-8")


if __name__ == "__main__":
    main()
