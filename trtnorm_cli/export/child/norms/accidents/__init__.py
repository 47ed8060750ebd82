"""Norm accidents, which are put right, warned of or refused in a model before it is exported.

``put_right`` runs every step in order, first those that change the module that will be exported, then those that look.
Everything that a step did or found is an ``Accident``. Nothing is changed without one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from trtnorm_cli.errors import RewriteError, TrtnormError, UsageProblem
from trtnorm_cli.export.child.norms.accidents.accident import KINDS, Accident
from trtnorm_cli.export.child.norms.accidents.lazy_modules import initialise_lazy_modules
from trtnorm_cli.export.child.norms.accidents.reparametrisation import fold_parametrizations
from trtnorm_cli.export.child.norms.accidents.sizes import sizes_fit
from trtnorm_cli.export.child.norms.accidents.statistics import statistics_are_there
from trtnorm_cli.export.child.norms.accidents.sync_batchnorm import convert_sync_batchnorm
from trtnorm_cli.export.child.norms.accidents.training_mode import leave_training_mode
from trtnorm_cli.export.child.norms.accidents.types import types_agree
from trtnorm_cli.export.child.norms.accidents.values import scales_are_not_zero, tensors_are_finite, variances_are_positive
from trtnorm_cli.export.child.norms.accidents.wrappers import unwrap
from trtnorm_cli.export.child.norms.norm_modules import norms
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.suggest import did_you_mean, listing

# What only looks; the order is that of the report.
CHECKS: tuple[Callable[[nn.Module], list[Accident]], ...] = (
    tensors_are_finite,
    variances_are_positive,
    scales_are_not_zero,
    sizes_fit,
    statistics_are_there,
    types_agree,
)
_SHOWN = 8


@dataclass(frozen=True)
class PutRight:
    """The module to export, and what was changed in it, is doubtful, or was accepted all the same."""

    module: nn.Module
    accidents: tuple[Accident, ...]

    @property
    def batch_statistics_in_training(self) -> bool:
        """A BatchNorm was left in training mode on purpose. The dynamo exporter would write it with running statistics."""
        return any(norm.uses_batch_statistics and norm.has_statistics for norm in norms(self.module))


def put_right(
    module: nn.Module,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    keep_training: bool = False,
    accepted: Collection[str] = (),
) -> PutRight:
    """Put right what can be, and list what cannot, in the order of this module.

    ``args`` and ``kwargs`` are example inputs, None when there are none. ``accepted`` are kinds that are warned of instead of
    refused. ``module`` is changed in place where an accident says ``fixed``. Raises ``RewriteError`` with every refusal.
    """
    right = examine(module, args, kwargs, keep_training=keep_training, accepted=accepted)
    require_none_refused(right.accidents)
    return right


def examine(
    module: nn.Module,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    keep_training: bool = False,
    accepted: Collection[str] = (),
) -> PutRight:
    """Put right as ``put_right`` does, with what it would refuse among the accidents."""
    module, found = unwrap(module)
    found += initialise_lazy_modules(module, args, kwargs or {})
    found += leave_training_mode(module, keep_training)
    module, converted = convert_sync_batchnorm(module)
    found += converted
    found += fold_parametrizations(module)
    for check in CHECKS:
        found += check(module)
    return PutRight(module, tuple(accepting(found, accepted)))


def accepting(found: Sequence[Accident], accepted: Collection[str]) -> list[Accident]:
    """``found`` with a warning for each refusal of an accepted kind. Raises ``UsageProblem`` for a kind that is none."""
    _require_known(accepted)
    return [_accepted(accident) if accident.kind in accepted else accident for accident in found]


def _accepted(accident: Accident) -> Accident:
    if accident.severity != "refused":
        return accident
    return replace(accident, severity="warning", message=f"{accident.message} (accepted)")


def require_none_refused(found: Sequence[Accident]) -> None:
    """Raise ``RewriteError`` naming every accident that is refused."""
    refused = [accident for accident in found if accident.severity == "refused"]
    if refused:
        raise refusal(refused)


def refusal(refused: Sequence[Accident]) -> TrtnormError:
    """One error for all refusals. The ways out are listed once each."""
    lines = [str(accident) for accident in refused[:_SHOWN]]
    if len(refused) > _SHOWN:
        lines.append(f"and {len(refused) - _SHOWN} more")
    kinds = list(dict.fromkeys(accident.kind for accident in refused))
    hints = list(dict.fromkeys(accident.hint for accident in refused if accident.hint))
    if any(kind not in NEVER_ACCEPTED for kind in kinds):
        hints.append(f"or export it as it is: {' '.join(f'--accept {kind}' for kind in kinds if kind not in NEVER_ACCEPTED)}")
    summary = f"the model cannot be right: {listing(KINDS[kind] for kind in kinds)}"
    return RewriteError(summary, "\n".join(["found:", *lines]) if len(lines) > 1 else lines[0], "\n".join(hints))


# Without sizes or values there is nothing to export.
NEVER_ACCEPTED = ("lazy-module-uninitialised", "no-values")


def _require_known(accepted: Collection[str]) -> None:
    for kind in accepted:
        if kind not in KINDS:
            raise UsageProblem(
                f"there is no accident {kind!r}{did_you_mean(kind, KINDS)}", "--accept", f"known: {listing(KINDS, 99)}"
            )
        if kind in NEVER_ACCEPTED:
            raise UsageProblem(f"{kind} cannot be accepted: {KINDS[kind]}", "--accept")
