"""Names in a build profile that the model or trtnorm must know, of outputs, rewrite rules and normalization nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.plugins import unknown_nodes
from trtnorm_cli.profile.problems import Problem, refusal
from trtnorm_cli.suggest import did_you_mean, listing


def refuse_unknown_names(
    profile: BuildProfile,
    *,
    outputs: Sequence[str] | None = None,
    rules: Sequence[str] | None = None,
    normalizations: Sequence[str] | None = None,
    operators: Mapping[str, str] | None = None,
) -> None:
    """Check the outputs under ``tolerances``, the rules under ``rules.skip``, the nodes under ``mismatch``, and those under
    ``instance_norm`` and ``group_norm``, for which ``operators`` maps the model's normalization nodes to their operators.

    None leaves a kind unchecked.

    Raises one ProfileError that names every unknown one, the nearest known one, and all there are.
    """
    problems: list[Problem] = []
    if outputs is not None:
        problems += [
            Problem(
                ("tolerances", name),
                f"the model has no output {name!r}{did_you_mean(name, [*outputs, 'default'])}",
                f"outputs of the model: {listing(outputs)}; 'default' stands for all others",
            )
            for name in profile.tolerances
            if name not in outputs and name != "default"
        ]
    if rules is not None:
        problems += [
            Problem(
                ("rules", "skip", index),
                f"there is no rule {name!r}{did_you_mean(name, rules)}",
                "'trtnorm rules' lists them",
            )
            for index, name in enumerate(profile.rules.skip)
            if name not in rules
        ]
    if normalizations is not None:
        problems += [
            Problem(
                ("mismatch", name),
                f"the model has no normalization {name!r}{did_you_mean(name, normalizations)}",
                f"normalizations of the model: {listing(normalizations)}",
            )
            for name in profile.mismatch
            if name not in normalizations
        ]
    if operators is not None:
        problems += unknown_nodes(profile, operators)
    if problems:
        raise refusal(problems, profile.positions)
