from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.surgery import Surgery, open_model
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite import driver
from trtnorm_cli.rewrite.ambiguities import tolerant_types
from trtnorm_cli.rewrite.proof.check import Prover
from trtnorm_cli.rewrite.proof.check_shapes import check_types
from trtnorm_cli.rewrite.rule import Rule
from trtnorm_cli.rewrite.rules import RULES


@dataclass(frozen=True)
class Result:
    """A model before and after the rules, with the driver's record."""

    source: onnx.ModelProto
    model: onnx.ModelProto
    outcome: driver.Outcome
    surgery: Surgery

    @property
    def rules(self) -> list[str]:
        return [change.rule for change in self.outcome.changes]

    @property
    def operators(self) -> list[str]:
        return [node.op_type for node in self.model.graph.node]

    def reason(self, rule: str) -> str:
        """The one reason for which ``rule`` refused."""
        reasons = [rejection.reason for rejection in self.outcome.rejections if rejection.rule == rule]
        assert len(reasons) == 1, reasons
        return reasons[0]


Rewrite = Callable[..., Result]


@pytest.fixture(scope="session")
def runner() -> Iterator[OrtRunner]:
    with OrtRunner(threads=1) as running:
        yield running


@pytest.fixture
def rewrite(runner: OrtRunner) -> Rewrite:
    """Apply rules to a model that needs no cleaning, with the real check.

    ``tolerant`` infers shapes behind invalid normalizations too, as is done where ambiguities are resolved.
    """

    def apply(
        model: onnx.ModelProto,
        rules: tuple[Rule, ...] = RULES,
        pins: dict[str, tuple[int, ...]] | None = None,
        folder: Path | None = None,
        settings: RewriteSettings | None = None,
        tolerant: bool = False,
        may_be_undone: bool = False,
    ) -> Result:
        typed = onnx.shape_inference.infer_shapes(model)
        surgery = open_model(typed, folder)
        types, pinned = tolerant_types(typed, pins) if tolerant else (declared_types(typed), check_types(typed, pins))
        outcome = driver.apply(surgery, rules, types, Prover(runner, pinned), settings)
        # What is undone is a defect of a rule: only tests that plant one expect it.
        assert [u for u in outcome.undone if not may_be_undone] == []
        result = surgery.close() if outcome.changes else typed
        return Result(model, result, outcome, surgery)

    return apply


@pytest.fixture(scope="session")
def rewrite_once(runner: OrtRunner) -> Callable[[onnx.ModelProto, Rule], onnx.ModelProto]:
    """Apply one rule, which has to fit exactly once; for property tests, whose fixtures outlive an example."""

    def apply(model: onnx.ModelProto, rule: Rule) -> onnx.ModelProto:
        typed = onnx.shape_inference.infer_shapes(model)
        surgery = open_model(typed, None)
        outcome = driver.apply(surgery, (rule,), declared_types(typed), Prover(runner, check_types(typed, None)))
        assert [change.rule for change in outcome.changes] == [rule.name], outcome
        return surgery.close()

    return apply
