"""Write the manifests of ``tests/data/manifests``, with real builds of the samples; takes some minutes.

Run from the root of the repository, with the extras rtx and torch: python tests/data/make_manifests.py
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TARGET = Path(__file__).with_name("manifests")
TRTNORM = [sys.executable, "-m", "trtnorm_cli"]
# The name of a manifest, the folder of the sample, the callable, and further options.
SAMPLES = (
    ("llama", "llama_rmsnorm", "block", ()),
    ("flow", "optical_flow_instancenorm", "flow", ()),
    ("style", "style_transfer_instancenorm", "generator", ()),
    ("unet3d", "unet3d_batchnorm", "unet", ()),
    ("vit", "vit_layernorm", "vit", ()),
    ("unet_fp16", "unet_groupnorm", "unet", ("--precision", "fp16")),
)


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "resnet18.onnx"
        run([sys.executable, "samples/resnet18_batchnorm/export.py", "-o", str(model)])
        build("resnet18", str(model), "configs/resnet18.yaml", folder)
        for manifest, sample, function, options in SAMPLES:
            place = f"samples/{sample}"
            build(manifest, f"{place}/model.py:{function}", f"{place}/profile.yaml", folder, *options)


def build(name: str, model: str, profile: str, folder: Path, *options: str) -> None:
    engine = folder / f"{name}.engine"
    run([*TRTNORM, "build", model, "--profile", profile, "-o", str(engine), "-q", *options])
    values = json.loads(engine.with_name(f"{engine.name}.json").read_text(encoding="utf-8"))
    text = json.dumps(values, separators=(",", ":"))
    (TARGET / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def run(command: list[str]) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
