"""Reading what the user gave: once a command, and without changing it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.errors import ModelError, ProfileError
from trtnorm_cli.files import sha256_of
from trtnorm_cli.onnx_model import load, source_files
from trtnorm_cli.profile import load as profile_load
from trtnorm_cli.profile import prove
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare, rewrite_settings

GRAPH = "g (float[N, 2, 9, 9] x) => (float[N, 4, 7, 7] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"
PROFILE = "dims: {N: {min: 1, opt: 2, max: 4}}\n"


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    saved(parse(GRAPH, {"w": random(4, 2, 3, 3), **batchnorm(4)}), tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text(PROFILE)
    return tmp_path


@pytest.fixture
def done(monkeypatch) -> Counter:
    """How often what takes time on a large model was done, by the name of the file where there is one."""
    counts: Counter = Counter()

    def counted(module, name, key):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, **k: counts.update([key(*a)]) or real(*a, **k))

    counted(load, "read_model", lambda path: f"parsed {path.name}")
    counted(source_files, "sha256_of", lambda files: f"hashed {Path(files[0]).name}")
    counted(prove, "propagate", lambda *rest: "proved")
    counted(profile_load, "parse_profile", lambda *rest: "profile read")
    return counts


@pytest.mark.rtx
@pytest.mark.parametrize("command", [
    ("build", "m.onnx", "-p", "c.yaml"),
    ("build", "m.onnx", "-p", "c.yaml", "--force"),
    ("compare", "m.onnx", "-p", "c.yaml"),
    ("compare", "m.onnx", "network:m.onnx", "-p", "c.yaml"),
    ("rewrite", "m.onnx", "-p", "c.yaml", "--dry-run", "--json"),
])  # fmt: skip
def test_everything_is_read_and_proved_once(work, done, command):
    assert run(list(command)) == 0
    named = {argument for argument in command if argument.endswith("m.onnx")}
    assert done.pop("parsed m.onnx") == len(named)
    assert (done.pop("proved"), done.pop("profile read")) == (1, 1)
    assert all(number == 1 for number in done.values()), done


@pytest.mark.parametrize("profile", [None, Path("c.yaml")])
def test_rewriting_leaves_what_was_read_as_it_was(work, profile):
    prepared = prepare(OpenedModel.of_file(Path("m.onnx"), profile), needs_sizes=False)
    before = prepared.original.proto.SerializeToString(deterministic=True)
    assert [change.rule for change in prepared.rewrite().changes] == ["fold-batchnorm-conv"]
    assert prepared.original.proto.SerializeToString(deterministic=True) == before


def test_only_a_build_needs_sizes(work):
    with pytest.raises(ProfileError):
        prepare(OpenedModel.of_file(Path("m.onnx")))
    with pytest.raises(ValueError, match="without sizes"):
        _ = prepare(OpenedModel.of_file(Path("m.onnx")), needs_sizes=False).fitted


def test_the_digest_is_that_of_the_file_as_it_was_read(work):
    prepared = prepare(OpenedModel.of_file(Path("m.onnx")), needs_sizes=False)
    before = sha256_of([Path("m.onnx")])
    assert (prepared.sha256, prepared.loaded.sha256) == (before, before)
    Path("m.onnx").unlink()
    assert prepared.sha256 == before


def test_no_digest_is_made_of_what_took_the_files_place(work):
    prepared = prepare(OpenedModel.of_file(Path("m.onnx")), needs_sizes=False)
    Path("m.onnx").unlink()
    with pytest.raises(ModelError, match="changed while it was worked on"):
        _ = prepared.sha256


def test_without_a_profile_the_policy_is_that_of_an_empty_one():
    assert rewrite_settings(None).optimize == rewrite_settings(BuildProfile()).optimize == "auto"


@pytest.mark.parametrize(
    ("said", "last_resorts"),
    [
        ({}, False),
        ({"optimize": "always"}, True),
        ({"optimize": "kernels"}, True),
        ({"precision": {"type": "fp16"}}, True),
        ({"precision": {"type": "as-written"}}, False),
    ],
)
def test_last_resorts_are_taken_before_another_precision_and_where_all_that_may_help_is_asked_for(said, last_resorts):
    assert rewrite_settings(BuildProfile.model_validate(said)).last_resorts == last_resorts
    assert not rewrite_settings(None).last_resorts
