"""Prove changes with what is imported when the first of them is to be proved: a model that stays needs none of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.rewrite.realise import Realised
from trtnorm_cli.rewrite.rule import Check, Match

if TYPE_CHECKING:
    from collections.abc import Callable

    from trtnorm_cli.evaluate.ort_runner import OrtRunner


def late_prover(
    runner: OrtRunner, pinned: Mapping[str, TensorType], proofs: dict[str, Check] | None = None
) -> Callable[[Match, Realised], Check]:
    """A ``Prover`` that is made at the first call."""
    made: list[Callable[[Match, Realised], Check]] = []

    def prove(found: Match, realised: Realised) -> Check:
        if not made:
            from trtnorm_cli.rewrite.proof.check import Prover

            made.append(Prover(runner, pinned, proofs={} if proofs is None else proofs))
        return made[0](found, realised)

    return prove
