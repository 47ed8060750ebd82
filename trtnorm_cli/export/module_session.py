"""A comparison whose reference is a PyTorch module. It runs first, in a process of its own, on every set of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trtnorm_cli.compare.candidates import Candidates
from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.participants import OnnxParticipant, Recorded, loaded_participant
from trtnorm_cli.compare.result import Comparison, Trial
from trtnorm_cli.compare.session import with_tolerances
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.compare.trials import trials_of
from trtnorm_cli.errors import ModelError, UsageProblem
from trtnorm_cli.evaluate.tensor_files import write_tensor
from trtnorm_cli.export.launch import launch
from trtnorm_cli.export.opening import opened_model
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.export.request import RunRequest
from trtnorm_cli.export.verify import module_participant, read_trials
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.rewrite.prepare import prepare
from trtnorm_cli.scratch import Scratch
from trtnorm_cli.target import Target, require_torch


def run_module_session(
    reference: Target,
    candidates: Sequence[Target],
    profile_path: Path | None,
    settings: Settings,
    dynamic_quantization: str | None = None,
) -> Comparison:
    """Compare candidates with the module ``reference``.

    Without any, compare the models that it is exported to and rewritten to; ``dynamic_quantization`` is then as in a build.

    Raises the errors of exporting, reading, fitting and pairing, and ``ModelError`` when the module runs on none of the inputs.
    """
    require_torch()
    options = ExportOptions(seed=settings.seed, backend=settings.backend, verify=False, weights=settings.weights)
    with Scratch("trtnorm-compare-") as scratch:
        found = Candidates(scratch, settings.backend, settings.options.memory_bytes)
        if candidates:
            for target in candidates:
                found.add_candidate(target)
            return _judged(reference, found, None if profile_path is None else load_profile(profile_path), settings)
        with opened_model(reference, profile_path, options, None, dynamic_quantization) as opened:
            prepared = prepare(opened, settings.snap, needs_sizes=False)
            rewriting = prepared.rewrite()
            rewriting.require_all_checks_passed()
            found.accepted.append(loaded_participant(prepared.original, f"export of {reference.text}"))
            fixed = scratch / "rewritten.onnx"
            save_model(rewriting.model, fixed, rewriting.folder)
            found.add_rewriting(load_model(fixed), f"rewriting of {reference.text}")
            return _judged(reference, found, opened.profile, settings)


def _judged(module: Target, found: Candidates, profile: BuildProfile | None, settings: Settings) -> Comparison:
    described = next((candidate for candidate in found.accepted if isinstance(candidate, OnnxParticipant)), None)
    if described is None:
        if found.refused:
            return Comparison(module.text, candidates=list(found.refused))
        hint = "name the ONNX model that it was made from as well"
        raise UsageProblem("an engine alone does not say its inputs", module.text, hint)
    drawn = trials_of(described, profile, settings)
    recorded, skipped = _recorded(module, drawn.trials, settings)
    reference = module_participant(module.text, described.model.graph.input, recorded)
    kept = [trial for trial in drawn.trials if trial.label in recorded]
    comparison = compare(reference, found.accepted, kept, with_tolerances(settings, profile))
    comparison.candidates += found.refused
    comparison.skipped += skipped
    comparison.notes += drawn.notes
    comparison.inputs = drawn.inputs
    return comparison


def _recorded(module: Target, trials: Sequence[Trial], settings: Settings) -> tuple[dict[str, Recorded], tuple[str, ...]]:
    """The module's outputs on each set of inputs. Sets that it refuses are left out, with a line that says so."""
    with Scratch("trtnorm-module-") as folder:
        feeds = {
            trial.label: {key: write_tensor(folder / f"in{i}-{j}", array) for j, (key, array) in enumerate(trial.feeds.items())}
            for i, trial in enumerate(trials)
        }
        options = ExportOptions(seed=settings.seed, weights=settings.weights)
        request = RunRequest(module, options, feeds, settings.options.run_timeout_s)
        result = launch(request, folder)
        _, recorded = read_trials(folder, result.trials)
    if not recorded:
        raise ModelError("the module runs on none of the inputs", "\n".join([module.text, *result.skipped]))
    return recorded, result.skipped
