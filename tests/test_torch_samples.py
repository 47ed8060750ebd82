"""The samples that start from a PyTorch model: their README's commands run, and print what the README shows."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.test_samples import REPOSITORY, commands, made_once, run
from trtnorm_cli.profile.load import load_profile

SAMPLES = REPOSITORY / "samples"


@dataclass(frozen=True)
class Sample:
    """``norms`` are modules by family, ``layers`` those of TensorRT's network, ``sizes`` min, opt, max and multiple."""

    name: str
    engine: str
    norms: dict[str, int]
    layers: dict[str, int] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)
    rules: dict[str, int] = field(default_factory=dict)
    slow: bool = True


ALL = (
    Sample(
        "optical_flow_instancenorm",
        "flow.engine",
        {"instance": 7},
        {"NORMALIZATION": 0},
        {"H": (136, 184, 2160, 8), "W": (136, 320, 3840, 8)},
        {"normalization-to-scale-shift": 14},
    ),
    Sample(
        "unet3d_batchnorm",
        "unet3d.engine",
        {"batch": 10},
        {"CONVOLUTION": 11, "SCALE": 0},
        {"N": (1, 2, 4, 1)},
        {"fold-batchnorm-conv": 10},
        slow=False,
    ),
    Sample(
        "style_transfer_instancenorm",
        "style.engine",
        {"instance": 9},
        {"NORMALIZATION": 0},
        {"N": (1, 1, 4, 1), "H": (64, 96, 256, 1), "W": (64, 96, 256, 1)},
        {"normalization-to-scale-shift": 7, "untile-batchnorm": 2, "fold-batchnorm-conv": 2},
    ),
    Sample(
        "unet_groupnorm",
        "denoise.engine",
        {"group": 8},
        sizes={"N": (1, 2, 8, 1), "H": (16, 32, 64, 2), "W": (16, 32, 64, 2)},
    ),
    Sample("vit_layernorm", "vit.engine", {"layer": 7}, {"NORMALIZATION": 7}, {"N": (1, 4, 16, 1)}),
    Sample("llama_rmsnorm", "block.engine", {"rms": 2}, sizes={"N": (1, 2, 4, 1), "T": (4, 64, 256, 1)}),
)


def test_every_sample_with_a_build_profile_is_here():
    assert sorted(sample.name for sample in ALL) == sorted(path.parent.name for path in SAMPLES.glob("*/profile.yaml"))


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.name)
def test_the_build_profile_is_valid(sample):
    profile = load_profile(SAMPLES / sample.name / "profile.yaml")
    (sizes,) = (part.dims for part in profile.optimization_profiles)
    tuned_for = {name: opt for name, (_, opt, _, _) in sample.sizes.items()}
    assert {name: sizes[name].opt for name in sample.sizes} == tuned_for


@dataclass(frozen=True)
class Done:
    sample: Sample
    stdout: str
    manifest: dict[str, Any]


@pytest.fixture(
    scope="module",
    params=[pytest.param(sample, id=sample.name, marks=[pytest.mark.slow] if sample.slow else []) for sample in ALL],
)
def done(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Done:
    """The README's commands have run in a folder of their own."""
    sample: Sample = request.param

    def make(folder: Path) -> None:
        (folder / "samples").symlink_to(SAMPLES)
        finished = run(commands(SAMPLES / sample.name / "README.md"), folder)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        (folder / "printed.txt").write_text(finished.stdout, encoding="utf-8")

    folder = made_once(tmp_path_factory, sample.name, make)
    manifest = json.loads((folder / f"{sample.engine}.json").read_text(encoding="utf-8"))
    assert (folder / sample.engine).stat().st_size == manifest["engine"]["bytes"]
    return Done(sample, (folder / "printed.txt").read_text(encoding="utf-8"), manifest)


@pytest.mark.torch
@pytest.mark.rtx
class TestSample:
    def test_its_normalizations_are_those_of_the_network(self, done):
        assert dict(Counter(norm["family"] for norm in done.manifest["export"]["normalizations"])) == done.sample.norms
        layers = done.manifest["network"]["layers_by_type"]
        assert {layer: layers.get(layer, 0) for layer in done.sample.layers} == done.sample.layers

    def test_its_sizes_were_solved(self, done):
        found = {d["name"]: (*d["taken"], d["multiple_of"]) for d in done.manifest["export"]["dimensions"]}
        assert found == done.sample.sizes

    def test_its_rewriting_is_proved(self, done):
        changes = done.manifest["changes"]
        counted = Counter(change["rule"] for change in changes)
        assert {rule: counted[rule] for rule in done.sample.rules} == done.sample.rules
        assert all(change["check"]["passed"] for change in changes)

    def test_the_export_and_the_network_compute_what_the_module_computes(self, done):
        assert done.manifest["export"]["comparison"]["passed"]
        assert done.manifest["comparison"]["passed"]

    def test_the_readme_shows_what_is_printed(self, done):
        """Every line of a ``text`` block is printed; ``UPDATE_SNAPSHOTS=1`` takes over the lines that begin alike."""
        path = SAMPLES / done.sample.name / "README.md"
        if os.environ.get("UPDATE_SNAPSHOTS") == "1":
            path.write_text(refreshed(path.read_text(encoding="utf-8"), done.stdout), encoding="utf-8")
        blocks = text_blocks(path.read_text(encoding="utf-8"))
        shown = [" ".join(line.split()) for block in blocks for line in block.splitlines() if line.strip() not in ("", "…")]
        printed = {" ".join(line.split()) for line in done.stdout.splitlines()}
        assert shown
        assert [line for line in shown if line not in printed] == []


def text_blocks(readme: str) -> list[str]:
    return re.findall(r"^```text\n(.*?)^```", readme, re.S | re.M)


def refreshed(readme: str, printed: str) -> str:
    """``readme`` with the lines of its ``text`` blocks as they are printed now, found by what stands in the first column."""
    by_label = {label(line): line.rstrip() for line in printed.splitlines() if label(line)}

    def block(match: re.Match[str]) -> str:
        lines = [by_label.get(label(line), line) if label(line) else line for line in match[1].splitlines()]
        return "```text\n" + "\n".join(lines) + "\n```"

    return re.sub(r"^```text\n(.*?)^```", block, readme, flags=re.S | re.M)


def label(line: str) -> str:
    """``kernels`` of ``kernels  12: …``; nothing for continued lines and warnings."""
    found = re.match(r" {0,4}(\S+(?: \S+)*) {2,}\S", line)
    return found[1] if found else ""


def test_a_readme_is_refreshed_line_by_line():
    readme = "a\n```text\nkernels    12: 3 kgen\n…\nWARNING: w\n```\nkernels  1\n"
    assert refreshed(readme, "x  1\nkernels    13: 4 kgen   \n") == readme.replace("12: 3 kgen", "13: 4 kgen")


def test_no_sample_names_this_machine():
    texts = {path: path.read_text(encoding="utf-8") for path in SAMPLES.rglob("*") if path.suffix in (".py", ".md", ".yaml")}
    assert len(texts) > len(ALL)
    assert [path for path, text in texts.items() if str(REPOSITORY) in text or re.search(r"/(tmp|home|root)/", text)] == []
