"""Noticing that a model's files changed while it was worked on."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace

import pytest

from tests.models import parse, saved
from trtnorm_cli import files
from trtnorm_cli.errors import ModelError, OutOfTolerance, TensorRTRefusal
from trtnorm_cli.onnx_model import source_files
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.source_files import SourceFiles


@pytest.fixture
def path(tmp_path):
    return saved(parse("g (float[N, 4] x) => (float[N, 4] y) { y = Relu(x) }"), tmp_path / "m.onnx")


def grown(path):
    path.write_bytes(path.read_bytes() + b"more")


def replaced(path):
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def overwritten_in_secret(path):
    """Other bytes of the same number, and the time of the last change as it was."""
    was = path.stat()
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


@pytest.mark.parametrize(
    "change", [grown, replaced, lambda path: path.unlink(), overwritten_in_secret], ids=["grown", "replaced", "gone", "secret"]
)
def test_a_change_is_noticed(path, change):
    loaded = load_model(path)
    loaded.require_unchanged()
    change(path)
    with pytest.raises(ModelError, match="changed while it was worked on"):
        loaded.require_unchanged()


def test_the_digest_is_that_of_what_was_read(path):
    expected = hashlib.sha256(path.read_bytes()).hexdigest()
    early, late = load_model(path), load_model(path)
    early.keep_digest()
    grown(path)
    assert early.sha256 == expected
    with pytest.raises(ModelError, match="changed while it was worked on"):
        assert late.sha256


def test_the_digest_is_computed_once_and_only_when_it_is_wanted(path, monkeypatch):
    calls = []
    monkeypatch.setattr(source_files, "sha256_of", lambda paths: calls.append(paths) or files.sha256_of(paths))
    loaded = load_model(path)
    assert calls == []
    loaded.start_digest()
    other = replace(loaded, warnings=("one",))
    other.start_digest()
    assert loaded.sha256 == other.sha256
    assert calls == [(path,)]


def test_a_digest_that_cannot_be_computed_is_told_to_who_asks(tmp_path):
    nothing = SourceFiles([tmp_path / "nothing"])
    nothing.start_digest()
    with pytest.raises(FileNotFoundError):
        nothing.sha256()


def test_an_error_of_a_changed_file_is_explained_by_that(path):
    loaded = load_model(path)

    def fail() -> None:
        with loaded.files.explaining_errors():
            raise OutOfTolerance("the numbers differ")

    with pytest.raises(OutOfTolerance):
        fail()
    grown(path)
    with pytest.raises(ModelError, match="changed while it was worked on"):
        fail()


def touched(path):
    path.touch()
    path.chmod(0o600)


@pytest.mark.parametrize("change", [touched, replaced])
def test_the_same_content_is_no_change_once_the_digest_is_known(path, change):
    loaded = load_model(path)
    loaded.keep_digest()
    change(path)
    loaded.require_unchanged()
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(ModelError, match="changed while it was worked on"):
        loaded.require_unchanged()


@pytest.mark.parametrize("has_changed", [True, False], ids=["changed", "as it was"])
def test_evidence_goes_with_the_error_that_nobody_is_told_of(path, tmp_path, has_changed):
    """A refusal of a file that had been cut off left the folder for a report, which no message named."""
    evidence = tmp_path / "trtnorm-network-1"
    evidence.mkdir()
    refusal = TensorRTRefusal("TensorRT does not accept the model")
    refusal.evidence = evidence
    read = SourceFiles([path])
    if has_changed:
        grown(path)
    with pytest.raises(ModelError if has_changed else TensorRTRefusal), read.explaining_errors():
        raise refusal
    assert evidence.exists() is not has_changed
