"""Rewrite one model: clean, plan, apply, check. One straight function of named steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from trtnorm_cli.compare.runner import OrtRunner
from trtnorm_cli.errors import RewriteError
from trtnorm_cli.onnx_model.clean import Cleaning, clean
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types, default_pins, model_inputs, pinned_types
from trtnorm_cli.onnx_model.surgery import Surgery, open_model
from trtnorm_cli.rewrite import driver
from trtnorm_cli.rewrite.check import Judge
from trtnorm_cli.rewrite.rule import Change, Rejection, Rule
from trtnorm_cli.rewrite.rules import RULES, rule_named

# Sizes tried for unknown spatial dimensions when no profile says which sizes the model takes.
_SPATIAL_PINS = (32, 64, 128, 224, 256, 512)


@dataclass(frozen=True)
class Rewriting:
    """A rewritten model and the record of how it came about.

    ``cleaned`` is the model between cleaning and the rules; tensors in external files are relative to ``folder``.
    """

    model: onnx.ModelProto
    folder: Path
    cleaning: Cleaning
    changes: tuple[Change, ...]
    failed: tuple[Change, ...]
    rejections: tuple[Rejection, ...]

    @property
    def cleaned(self) -> onnx.ModelProto:
        return self.cleaning.model

    def require_all_checks_passed(self) -> None:
        """Raise ``RewriteError`` naming every change whose check failed; those changes are not in ``model``."""
        if not self.failed:
            return
        lines = [f"{change.rule} at {change.node}: {change.check.reason}" for change in self.failed]
        rules = sorted({change.rule for change in self.failed})
        raise RewriteError(
            f"{len(self.failed)} change(s) failed their numeric check and were undone; nothing was written",
            where="\n".join(["these changes:", *lines]),
            hint="leave the rule out in the build profile and report this model:\nrules:\n  skip: [" + ", ".join(rules) + "]",
        )


def rewrite(loaded: LoadedModel, pins: Mapping[str, tuple[int, ...]] | None = None, skip: Sequence[str] = ()) -> Rewriting:
    """Clean ``loaded`` and apply the rules, each change proved at the input shapes ``pins``.

    Without ``pins``, small shapes are chosen. ``skip`` names rules to leave out. The loaded model is not changed.
    """
    rules = select_rules(skip)
    cleaning = clean(loaded.proto, loaded.folder)
    surgery = open_model(cleaning.model, loaded.folder)
    pinned = check_types(cleaning.model, pins)
    with OrtRunner() as runner:
        outcome = driver.apply(surgery, rules, declared_types(cleaning.model), Judge(runner, pinned))
    return Rewriting(
        model=surgery.close() if outcome.changes else cleaning.model,
        folder=loaded.folder,
        cleaning=cleaning,
        changes=tuple(outcome.changes),
        failed=tuple(outcome.failed),
        rejections=outcome.rejections,
    )


def plan(loaded: LoadedModel, skip: Sequence[str] = ()) -> tuple[Surgery, driver.Plan, Cleaning]:
    """What ``rewrite`` would try, without doing it."""
    cleaning = clean(loaded.proto, loaded.folder)
    surgery = open_model(cleaning.model, loaded.folder)
    return surgery, driver.plan(surgery, select_rules(skip), declared_types(cleaning.model)), cleaning


def select_rules(skip: Sequence[str]) -> tuple[Rule, ...]:
    """All rules in order, without those named in ``skip``; an unknown name is a ``UsageProblem``."""
    names = {rule_named(name).name for name in skip}
    return tuple(rule for rule in RULES if rule.name not in names)


def check_types(model: onnx.ModelProto, pins: Mapping[str, tuple[int, ...]] | None) -> dict[str, TensorType]:
    """Types of all tensors at the shapes at which changes are proved."""
    if pins is not None:
        return pinned_types(model, pins)
    if all(kind.is_static for kind in model_inputs(model).values()):
        return pinned_types(model, default_pins(model))
    for size in _SPATIAL_PINS:
        types = pinned_types(model, default_pins(model, size))
        if not any(_vanishes(kind) for kind in types.values()):
            break
    return types


def _vanishes(kind: TensorType) -> bool:
    """True for a tensor without elements: the input was too small for the model."""
    return any(isinstance(size, int) and size <= 0 for size in kind.shape or ())


def require_valid(source: Path, result: Path) -> None:
    """Run the ONNX checker with shape inference on the file ``result``.

    What it objects to in ``source`` as well is none of the rewriting's doing. Raises ``RewriteError`` otherwise.
    """
    objection = _objection(result)
    if objection is None or _objection(source) is not None:
        return
    raise RewriteError(
        f"the rewritten model is not valid ONNX, so nothing was written: {objection}",
        str(source),
        "this is a defect in a rewrite rule: please report it with the model",
    )


def _objection(path: Path) -> str | None:
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return " ".join(str(error).split())
    return None
