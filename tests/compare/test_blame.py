"""The ten planted defects: each is caught, and the node that is blamed is the damaged one."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.compare.planted import defects, network
from trtnorm_cli.compare.blame import Region
from trtnorm_cli.compare.candidates import Session
from trtnorm_cli.compare.participants import onnx_participant
from trtnorm_cli.compare.result import Comparison
from trtnorm_cli.compare.session import judge_session
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.profile.load import parse_profile

PROFILE = parse_profile("optimization_profiles:\n  - inputs:\n      image: 2x3x32x24\n")
DEEP = 9
NAMES = tuple(defects("block0"))


def compared(folder: Path, reference: onnx.ModelProto, candidate: onnx.ModelProto, **settings: object) -> Comparison:
    onnx.save(reference, folder / "reference.onnx")
    onnx.save(candidate, folder / "candidate.onnx")
    participants = [onnx_participant(folder / f"{name}.onnx") for name in ("reference", "candidate")]
    session = Session(participants[0], [participants[1]])
    return judge_session(session, PROFILE, Settings(in_between=0, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("blocks", [1, DEEP], ids=["shallow", "as deep as a ResNet-18"])
@pytest.mark.parametrize("name", NAMES)
def test_a_planted_defect_is_caught_and_the_right_node_blamed(tmp_path: Path, name: str, blocks: int) -> None:
    reference = network(blocks)
    candidate = copy.deepcopy(reference)
    damaged = defects(f"block{blocks // 2}")[name](candidate)
    found = compared(tmp_path, reference, candidate)
    assert not found.passed
    blame = found.candidates[0].blame
    assert blame is not None
    assert blame.node.split(" ")[0] == damaged


def test_of_many_nodes_that_may_be_to_blame_a_few_are_named() -> None:
    nodes = tuple(onnx.helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"], name=f"r{i}") for i in range(300))
    assert Region(nodes, ("t0",), "t300").text() == "Relu r0, Relu r1, Relu r2, Relu r3, Relu r4, Relu r5 and 294 more"
    assert Region(nodes[:2], ("t0",), "t2").text() == "Relu r0, Relu r1"


@pytest.mark.parametrize("seed", range(4))
def test_float32_noise_of_3e_8_in_every_weight_is_no_defect(tmp_path: Path, seed: int) -> None:
    reference = network(DEEP, seed)
    candidate = copy.deepcopy(reference)
    rng = np.random.default_rng(seed)
    for tensor in candidate.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor).astype(np.float64)
        noisy = values * (1 + 3e-8 * rng.standard_normal(values.shape))
        tensor.CopyFrom(onnx.numpy_helper.from_array(noisy.astype(np.float32), tensor.name))
    assert compared(tmp_path, reference, candidate).passed


def test_the_saved_sub_models_show_the_same_difference(tmp_path: Path) -> None:
    reference = network(1)
    candidate = copy.deepcopy(reference)
    defects("block0")["a wrong group count"](candidate)
    found = compared(tmp_path, reference, candidate, save_to=tmp_path / "shown")
    blame = found.candidates[0].blame
    assert blame is not None
    ours, theirs, data = (Path(file) for file in blame.files)
    assert len(onnx.load(ours).graph.node) == 1
    again = judge_session(Session(onnx_participant(ours), [onnx_participant(theirs)]), None, Settings(data=data, in_between=0))
    assert not again.passed
    assert again.candidates[0].verdicts[0].exact == pytest.approx(blame.error_after, rel=1e-3)
