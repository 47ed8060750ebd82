"""Put the samples and the NAFNet-like network beside the exports of libraries, with their build profiles.

    python -m benchmarks.precision_samples FOLDER

Writes NAME.onnx and NAME.yaml for each into the folder that ``benchmarks/precision_tools.py`` takes as ``--exports``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = {
    "llama_rmsnorm": "block",
    "optical_flow_instancenorm": "flow",
    "style_transfer_instancenorm": "generator",
    "unet3d_batchnorm": "unet",
    "unet_groupnorm": "unet",
    "vit_layernorm": "vit",
}


def commands(folder: Path) -> Iterator[tuple[str, list[str], Path | None]]:
    """The name of each model, the command that exports it, and its profile."""
    export = [sys.executable, "-m", "trtnorm_cli", "export"]
    for name, call in SAMPLES.items():
        spec, profile = ROOT / "samples" / name / "model.py", ROOT / "samples" / name / "profile.yaml"
        yield name, [*export, f"{spec}:{call}", "-p", str(profile), "-o", str(folder / f"{name}.onnx")], profile
    script = ROOT / "samples/resnet18_batchnorm/export.py"
    yield (
        "resnet18_batchnorm",
        [sys.executable, str(script), "-o", str(folder / "resnet18_batchnorm.onnx")],
        ROOT / "configs/resnet18.yaml",
    )
    yield (
        "nafnet",
        [*export, f"{ROOT / 'benchmarks/nafnet.py'}:nafnet", "-o", str(folder / "nafnet.onnx")],
        None,
    )


def main(folder: str) -> None:
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, command, profile in commands(target):
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        if profile is not None:
            (target / f"{name}.yaml").write_bytes(profile.read_bytes())
        print(name, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
