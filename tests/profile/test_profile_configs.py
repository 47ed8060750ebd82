"""Every file in configs/ is a build profile that is explained, and fits a small model of its kind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.rewrite.prepare import OpenedModel, Prepared, prepare

FOLDER = Path(__file__).parents[2] / "configs"
CONFIGS = sorted(FOLDER.glob("*.y*ml"))
every_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)


def convolution(axes: str, dims: int, out: str = "y", extra: str = "") -> onnx.ModelProto:
    """Conv and BatchNormalization of a tensor ``image[axes]`` with 3 channels."""
    weights = {"kernel": random(4, 3, *[3] * dims), **batchnorm(4)}
    return parse(
        f"""g (float[{axes}] image) => (float[] {out}) {{
            c = Conv <pads = [{", ".join(["1"] * 2 * dims)}]> (image, kernel)
            {out} = BatchNormalization (c, gamma, beta, mu, var) {extra}
        }}""",
        weights,
    )


def text() -> onnx.ModelProto:
    return parse(
        """g (int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask) => (float[] y) {
            words = Gather (table, input_ids)
            mask = Cast <to = 1> (attention_mask)
            shown = Unsqueeze (mask, last)
            masked = Mul (words, shown)
            y = LayerNormalization (masked, gamma, beta)
        }""",
        {"table": random(30522, 8), "last": np.array([2]), "gamma": random(8), "beta": random(8, seed=1)},
    )


def audio() -> onnx.ModelProto:
    """Frames of 160 samples; the sampling rate chooses one of two gains."""
    return parse(
        """g (float[batch, samples] sound, int64 sr) => (float[] y) {
            frames = Reshape (sound, shape)
            usual = Equal (sr, rate)
            gain = If (usual) <
                then_branch = narrow () => (float g1) { g1 = Identity (one) },
                else_branch = wide () => (float g2) { g2 = Identity (half) }>
            scaled = Mul (frames, gain)
            y = LayerNormalization (scaled, gamma, beta)
        }""",
        {
            "shape": np.array([0, -1, 160]), "rate": np.int64(16000), "one": np.float32(1), "half": np.float32(0.5),
            "gamma": random(160), "beta": random(160, seed=1),
        },
    )  # fmt: skip


def shared_sizes() -> onnx.ModelProto:
    """The second dimension of ``mask`` has no name."""
    model = parse(
        """g (float[N, 3, H, W] image, float[N, C, H, W] mask) => (float[] y) {
            masked = Mul (image, mask)
            y = BatchNormalization (masked, gamma, beta, mu, var)
        }""",
        batchnorm(3),
    )
    model.graph.input[1].type.tensor_type.shape.dim[1].ClearField("dim_param")
    return model


def instance_norms() -> onnx.ModelProto:
    model = parse(
        """g (float[N, 3, 16, 16] image) => (float[] y) {
            a = InstanceNormalization (image, gamma, beta)
            b = Relu (a)
            y = InstanceNormalization (b, gamma, beta)
        }""",
        {"gamma": random(3), "beta": random(3, seed=1)},
    )
    model.graph.node[0].name, model.graph.node[2].name = "/first/norm", "/last/norm"
    return model


MODELS = {
    "static": lambda: convolution("N, 3, H, W", 2),
    "dynamic_batch": lambda: convolution("N, 3, 32, 32", 2),
    "pictures": lambda: convolution("N, 3, H, W", 2),
    "resnet18": lambda: convolution("N, 3, H, W", 2),
    "video": lambda: convolution("N, 3, T, H, W", 3),
    "volumes": lambda: convolution("N, 3, D, H, W", 3),
    "text": text,
    "audio": audio,
    "shared_sizes": shared_sizes,
    "several_profiles": lambda: convolution("N, 3, H, W", 2),
    "plugins": instance_norms,
    "strict": lambda: convolution("N, 3, 32, 32", 2),
}


@pytest.fixture
def prepared(path: Path, tmp_path: Path) -> Prepared:
    return with_config(path.stem, tmp_path)


def with_config(name: str, folder: Path) -> Prepared:
    """The model of its kind, prepared with the config called ``name``."""
    model = saved(MODELS[name](), folder / "model.onnx")
    return prepare(OpenedModel(model, load_profile(FOLDER / f"{name}.yaml"), model, None))


def test_every_config_has_a_model_and_a_line_in_the_table() -> None:
    assert {path.stem for path in CONFIGS} == set(MODELS)
    table = re.findall(r"^\| \[([^]]+)\]", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M)
    assert sorted(table) == [path.name for path in CONFIGS]


@every_config
def test_every_config_says_what_it_is_for_in_three_lines(path: Path) -> None:
    schema, *lines = path.read_text(encoding="utf-8").splitlines()
    assert schema == "# yaml-language-server: $schema=profile.schema.json"
    assert [line[0] for line in lines[:3]] == ["#", "#", "#"]
    assert lines[3] == ""


@every_config
def test_every_config_fits_its_model_and_all_of_its_keys_are_used(path: Path, prepared: Prepared) -> None:
    fixed = "sr is always 16000 in the build profile: it stays an input, but what is fed to it is not read"
    notes = (fixed,) if path.stem == "audio" else ()
    assert prepared.proof is not None
    assert prepared.proof.notes == notes
    assert prepared.profile is not None
    named = set(prepared.profile.data)
    assert named <= {value.name for value in prepared.loaded.proto.graph.input}


@every_config
def test_every_change_under_it_is_proved(path: Path, prepared: Prepared) -> None:
    rewriting = prepared.rewrite()
    rewriting.require_all_checks_passed()
    rules = {change.rule for change in rewriting.changes}
    wanted = {"plugins": {"instance-norm-to-plugin"}, "strict": set(), "text": set(), "audio": set()}
    assert rules & wanted.get(path.stem, rules) == wanted.get(path.stem, rules)


def test_a_fixed_sampling_rate_takes_its_branch_away(tmp_path: Path) -> None:
    prepared = with_config("audio", tmp_path)
    assert "If" not in {node.op_type for node in prepared.rewrite().model.graph.node}


def test_one_node_keeps_its_layer_beside_plugins(tmp_path: Path) -> None:
    prepared = with_config("plugins", tmp_path)
    kinds = {node.name: node.op_type for node in prepared.rewrite().model.graph.node}
    assert kinds["/last/norm"] == "InstanceNormalization"
    assert "InstanceNormalization_TRT" in kinds.values()


def test_the_resnet18_profile_is_the_documented_one() -> None:
    (profile,) = load_profile(FOLDER / "resnet18.yaml").optimization_profiles
    assert profile.inputs["image"].corners() == ((1, 3, 224, 224), (8, 3, 224, 224), (32, 3, 448, 448))


@pytest.mark.slow
@pytest.mark.rtx
@every_config
def test_an_engine_is_built_with_every_config_but_that_of_another_backend(path: Path, tmp_path: Path) -> None:
    model = saved(MODELS[path.stem](), tmp_path / "model.onnx")
    done = subprocess.run(
        [sys.executable, "-m", "trtnorm_cli", "build", str(model), "-p", str(path), "-o", str(tmp_path / "model.engine"),
         "--backend", "tensorrt-rtx", "--no-compare", "--json"],
        capture_output=True, text=True, timeout=200, check=False, cwd=FOLDER.parent,
    )  # fmt: skip
    if path.stem == "plugins":
        assert done.returncode == 2
        assert "build with --backend tensorrt" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        built = [profile["name"] for profile in json.loads(done.stdout)["optimization_profiles"]]
        assert built == (["tiles", "pictures"] if path.stem == "several_profiles" else ["default"])
