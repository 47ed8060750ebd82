"""Weights beside the model: both formats, wrapped names, and files that must not be trusted."""

from __future__ import annotations

import builtins
import json
import pickle

import ml_dtypes
import numpy as np
import pytest

from trtnorm_cli.checkpoint import load_checkpoint
from trtnorm_cli.errors import UsageProblem

VALUES = {"bn.weight": np.arange(8, dtype=np.float32), "bn.bias": np.arange(8, dtype=np.float16) / 4}


@pytest.fixture
def safetensors_file(tmp_path):
    numpy_format = pytest.importorskip("safetensors.numpy")
    path = tmp_path / "model.safetensors"
    numpy_format.save_file(VALUES, path)
    return path


def torch_file(tmp_path, content, name="model.pt"):
    torch = pytest.importorskip("torch")
    torch.save(content(torch), tmp_path / name)
    return tmp_path / name


def tensors(torch, prefix=""):
    return {prefix + name: torch.from_numpy(value.copy()) for name, value in VALUES.items()}


def assert_holds_the_values(path, prefix=""):
    checkpoint = load_checkpoint(path)
    for name, value in VALUES.items():
        assert checkpoint.size(prefix + name) == 8
        read = checkpoint.values(prefix + name)
        assert read.dtype == value.dtype
        np.testing.assert_array_equal(read, value)
    assert checkpoint.size("bn.other") is None
    with pytest.raises(KeyError):
        checkpoint.values("bn.other")


def test_safetensors(safetensors_file):
    assert_holds_the_values(safetensors_file)


def test_a_file_that_is_no_safetensors(tmp_path):
    pytest.importorskip("safetensors")
    path = tmp_path / "broken.safetensors"
    path.write_bytes(b"\0" * 64)
    with pytest.raises(UsageProblem, match="not a safetensors file") as caught:
        load_checkpoint(path)
    assert caught.value.where == str(path)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["model.pt", "model.pth", "pytorch_model.bin", "last.ckpt"])
def test_a_state_dict(tmp_path, name):
    assert_holds_the_values(torch_file(tmp_path, tensors, name))


@pytest.mark.torch
@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model", "params", "net", "network", "weights", "generator"])
def test_a_training_checkpoint(tmp_path, key):
    assert_holds_the_values(torch_file(tmp_path, lambda torch: {"epoch": 3, key: tensors(torch)}))


@pytest.mark.torch
@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "model.", "module.model.", "_orig_mod.module.", "module._orig_mod."]
)
def test_the_prefix_of_a_wrapper(tmp_path, prefix):
    path = torch_file(tmp_path, lambda torch: tensors(torch, prefix))
    assert load_checkpoint(path).size("bn.weight") == 8
    np.testing.assert_array_equal(load_checkpoint(path).values("bn.weight"), VALUES["bn.weight"])


@pytest.mark.torch
def test_of_several_sets_the_usual_one_is_taken_and_said(tmp_path):
    def content(torch):
        return {"state_dict_ema": {name: value + 1 for name, value in tensors(torch).items()}, "state_dict": tensors(torch)}

    path = torch_file(tmp_path, content)
    assert_holds_the_values(path)
    assert load_checkpoint(path).notes == ("took 'state_dict' of the checkpoint, not state_dict_ema",)


@pytest.mark.torch
def test_several_sets_of_which_none_is_meant_for_sure(tmp_path):
    path = torch_file(tmp_path, lambda torch: {"generator": tensors(torch), "discriminator": tensors(torch)})
    with pytest.raises(UsageProblem, match="several sets of weights: generator, discriminator"):
        load_checkpoint(path)


def test_parts_named_by_an_index(tmp_path):
    numpy_format = pytest.importorskip("safetensors.numpy")
    weight_map = {name: f"part-{number}.safetensors" for number, name in enumerate(VALUES)}
    for name, file in weight_map.items():
        numpy_format.save_file({name: VALUES[name]}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert_holds_the_values(index)
    assert [file.name for file in load_checkpoint(index).files] == [index.name, *sorted(weight_map.values())]


@pytest.mark.torch
@pytest.mark.parametrize("wrapped", [
    lambda inner: inner,
    lambda inner: {"net": inner, "epoch": 3},
    lambda inner: {"model": {"state_dict": inner}, "ema": inner},
    lambda inner: {f"module.model.{name}": value for name, value in inner.items()},
    lambda inner: {f"net._orig_mod.{name}": value for name, value in inner.items()},
])  # fmt: skip
def test_weights_of_a_module_and_those_beside_a_file_are_read_alike(tmp_path, wrapped):
    torch = pytest.importorskip("torch")
    from trtnorm_cli.export.child.state_dict import read_state_dict
    from trtnorm_cli.export.child.weights import without_prefixes

    path = torch_file(tmp_path, lambda torch: wrapped(tensors(torch)))
    state, checkpoint = read_state_dict(path), load_checkpoint(path)
    assert state.notes == checkpoint.notes
    names = [name for names in ({*VALUES}, {f"net.{name}" for name in VALUES}) for name in names]
    for_module, _ = without_prefixes(state.tensors, names)
    assert for_module
    assert set(for_module) == {name for name in names if checkpoint.size(name) is not None}
    for name, value in for_module.items():
        assert torch.equal(value, torch.from_numpy(checkpoint.values(name)))


@pytest.mark.torch
def test_bfloat16_and_gradients(tmp_path):
    def content(torch):
        return {"w": torch.ones(3, dtype=torch.bfloat16), "p": torch.nn.Parameter(torch.ones(2))}

    checkpoint = load_checkpoint(torch_file(tmp_path, content))
    assert checkpoint.values("w").dtype == ml_dtypes.bfloat16
    assert checkpoint.values("p").tolist() == [1, 1]


class _Runs:
    ran = False

    def __reduce__(self):
        return (exec, ("from tests.rewrite import test_checkpoint; test_checkpoint._Runs.ran = True",))


@pytest.mark.torch
def test_code_in_a_checkpoint_is_not_run(tmp_path):
    path = torch_file(tmp_path, lambda torch: {"weights": _Runs()})
    with pytest.raises(UsageProblem, match="cannot be read as tensors alone") as caught:
        load_checkpoint(path)
    assert "torch.save(model.state_dict()" in caught.value.hint
    assert not _Runs.ran


@pytest.mark.torch
def test_a_plain_pickle_is_not_run(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "model.pt"
    path.write_bytes(pickle.dumps(_Runs()))
    with pytest.raises(UsageProblem):
        load_checkpoint(path)
    assert not _Runs.ran


@pytest.mark.torch
@pytest.mark.parametrize("content", [[1, 2], {}, {"epoch": 3}])
def test_a_file_without_tensors(tmp_path, content):
    with pytest.raises(UsageProblem, match="holds no tensors by name"):
        load_checkpoint(torch_file(tmp_path, lambda torch: content))


def test_a_missing_file(tmp_path):
    with pytest.raises(UsageProblem, match="no such file of weights"):
        load_checkpoint(tmp_path / "none.pt")


@pytest.mark.parametrize("name", ["weights.npz", "weights"])
def test_an_unknown_suffix(tmp_path, name):
    (tmp_path / name).write_bytes(b"1")
    with pytest.raises(UsageProblem, match="weights cannot be read from a") as caught:
        load_checkpoint(tmp_path / name)
    assert ".safetensors" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("w.safetensors", "safetensors", "weights"), ("w.pt", "torch", "torch")]
)
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, name, package, extra):
    (tmp_path / name).write_bytes(b"1")
    real = builtins.__import__

    def without(module, *rest, **options):
        if module.partition(".")[0] == package:
            raise ImportError(module)
        return real(module, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageProblem, match=f"{package} is not installed") as caught:
        load_checkpoint(tmp_path / name)
    assert caught.value.hint == f"pip install 'trtnorm[{extra}]'"
