"""Which files of a traceback are the user's."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch


def test_libraries_whose_names_begin_like_pytorchs_are_the_users():
    import torch

    from trtnorm_cli.export.child import source

    packages = Path(torch.__file__).parents[1]
    assert source.is_plumbing(torch.__file__)
    assert source.is_plumbing(source.__file__)
    assert source.is_plumbing(inspect.__file__)
    assert source.is_plumbing("<string>")
    assert not source.is_plumbing(str(packages / "torchvision" / "models" / "raft.py"))
    assert not source.is_plumbing(str(packages / "timm" / "layers" / "patch_embed.py"))
    assert not source.is_plumbing("/home/user/model.py")
