"""Rewrite one model: clean, resolve ambiguities, plan, apply, check, audit. One straight function of named steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Protocol

import onnx

from trtnorm_cli.errors import RewriteError
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.clean import Cleaning, clean
from trtnorm_cli.onnx_model.domains import default_opset
from trtnorm_cli.onnx_model.fixed_inputs import redeclared, with_fixed
from trtnorm_cli.onnx_model.infer import checker_objection, does_not_fit_together, mend_stated_shapes
from trtnorm_cli.onnx_model.load import LoadedModel, objection_to_file, read_model
from trtnorm_cli.onnx_model.normalization_nodes import normalizations
from trtnorm_cli.onnx_model.old_opsets import TARGET as OLDEST
from trtnorm_cli.onnx_model.old_opsets import raise_old_opset
from trtnorm_cli.onnx_model.placeholders import without_placeholders
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.surgery import Surgery, open_model
from trtnorm_cli.profile.rewriting import Optimize, RewriteSettings
from trtnorm_cli.progress import stage
from trtnorm_cli.records.types import TypesRecord
from trtnorm_cli.rewrite import driver
from trtnorm_cli.rewrite.ambiguities import ProofShapes, Resolver, tolerant_types
from trtnorm_cli.rewrite.audit.audit import SPOILT, Refusal, audit
from trtnorm_cli.rewrite.audit.plugin_choice import UnmetRequest, idle_requests, impossible, unmet_requests
from trtnorm_cli.rewrite.audit.readings import CHECKPOINT
from trtnorm_cli.rewrite.editor import Prove
from trtnorm_cli.rewrite.effect import Effect
from trtnorm_cli.rewrite.fixed_positions import single_positions, with_single_positions
from trtnorm_cli.rewrite.norms.record import CompositeNorm, composite_norms
from trtnorm_cli.rewrite.proof.check_shapes import CompletedTypes, check_types
from trtnorm_cli.rewrite.proof.late import late_prover
from trtnorm_cli.rewrite.realise import Realised
from trtnorm_cli.rewrite.rule import Cache, Change, Check, Match, Rejection, Rule, Undone
from trtnorm_cli.rewrite.rules import ON_REQUEST, REPAIRS, RULES, rule_named
from trtnorm_cli.rewrite.shortcuts_first import shortcuts_first
from trtnorm_cli.rewrite.steady import apply_steadily
from trtnorm_cli.rewrite.undoing import breakage, is_optional, undone_warning

_SHOWN = 8
# Of these some are written anew in nearly every model that has them.
_MOSTLY_CHANGED = frozenset({"BatchNormalization", "GroupNormalization", "InstanceNormalization"})


@dataclass(frozen=True)
class Rewriting:
    """A rewritten model and the record of how it came about.

    ``cleaned`` is the model between cleaning and the rules; tensors in external files are relative to ``folder``.
    ``meant`` is the model that comparisons are made with where the file itself cannot serve: it is invalid and was repaired,
    or the user asked to read it otherwise. ``refusals`` are normalizations that TensorRT must not be given as they are;
    ``unmet`` are those that should be a plugin and cannot. ``effects`` say how far results move where the user asked to read
    the model otherwise. ``composites`` are the normalizations that were written in pieces. ``undone`` are changes that the
    model can do without and that could not be made. ``types`` say which types were replaced in ``model`` because TensorRT does
    not have them, and ``wide`` is the model before that, where there were any. The models refer to values on the ``shelves``,
    and must not outlive these. ``follows_measured`` is False where the setting ``measured`` made no difference.
    """

    model: onnx.ModelProto
    folder: Path
    cleaning: Cleaning
    changes: tuple[Change, ...]
    failed: tuple[Change, ...]
    rejections: tuple[Rejection, ...]
    refusals: tuple[Refusal, ...] = ()
    unmet: tuple[UnmetRequest, ...] = ()
    meant: onnx.ModelProto | None = None
    effects: tuple[Effect, ...] = ()
    notes: tuple[str, ...] = ()
    composites: tuple[CompositeNorm, ...] = ()
    undone: tuple[Undone, ...] = ()
    types: TypesRecord | None = None
    wide: onnx.ModelProto | None = None
    shelves: tuple[Shelf, ...] = field(default=(), repr=False, compare=False)
    follows_measured: bool = field(default=True, repr=False, compare=False)

    @property
    def cleaned(self) -> onnx.ModelProto:
        return self.cleaning.model

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings for the user, each once with the nodes that it is about."""
        nodes: dict[str, list[str]] = {}
        for change in self.changes:
            if change.warning:
                nodes.setdefault(change.warning, []).append(change.node)
        undone = [undone_warning(self.undone)] if self.undone else []
        return (*undone, *(f"{_counted(names)} {text}" for text, names in nodes.items()), *self.notes)

    def require_all_checks_passed(self) -> None:
        """Raise ``RewriteError`` naming every change whose check failed, or every normalization that must not stay as it is.

        A change whose check failed is not in ``model``.
        """
        if self.failed:
            raise _failed_checks(self.failed)
        if self.refusals:
            raise _refused(self.refusals)
        if self.unmet:
            raise impossible(self.unmet)


def _counted(names: Sequence[str]) -> str:
    """``bn1``, or ``each of 3 nodes (bn1, bn2, bn3)``: always singular, so that the verb fits."""
    if len(names) == 1:
        return names[0]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"each of {len(names)} nodes ({', '.join(names[:_SHOWN])}{more})"


def _failed_checks(failed: Sequence[Change]) -> RewriteError:
    lines = [f"{change.rule} at {change.node}: {change.check.reason}" for change in failed]
    rules = sorted({change.rule for change in failed})
    return RewriteError(
        f"{len(failed)} change(s) failed their numeric check and were undone; nothing was written",
        where="\n".join(["these changes:", *lines]),
        hint="leave the rule out in the build profile and report this model:\nrules:\n  skip: [" + ", ".join(rules) + "]",
    )


def _refused(refusals: Sequence[Refusal]) -> RewriteError:
    lines = []
    for refusal in refusals[:_SHOWN]:
        lines.append(f"{refusal.title}: {refusal.reason}")
        lines += [f"    {detail}" for detail in refusal.details]
    if len(refusals) > _SHOWN:
        lines.append(f"and {len(refusals) - _SHOWN} more")
    ways_out = dict.fromkeys(refusal.way_out for refusal in refusals[:_SHOWN])
    return RewriteError(
        f"{len(refusals)} normalization(s) would be refused or computed wrongly by TensorRT; nothing was written",
        where="\n".join(["these nodes:", *lines]),
        hint="\n".join(ways_out),
    )


# Is told the rule of an optional change that will be proved and may have a kernel of its own.
Foreseen = Callable[[str], None]


class Rewriter(Protocol):
    """One model under one set of settings, which can be rewritten several times with other optional changes left out."""

    @property
    def settings(self) -> RewriteSettings: ...

    @property
    def model(self) -> onnx.ModelProto:
        """The model that the rules are applied to."""

    def rewrite(
        self,
        optimize: Optimize | None = None,
        left_out: frozenset[str] = frozenset(),
        measured: bool = False,
        foreseen: Foreseen | None = None,
    ) -> Rewriting:
        """Apply the rules; the arguments say which optional changes are wanted, as in ``RewriteSettings``.

        The first one of a rule that may have a kernel of its own is ``foreseen`` before it is proved.
        """


class RewritingSession:
    """One model under one set of settings, which can be rewritten several times with other optional changes left out.

    Cleaning and resolving are done once, and a change that was proved once is not proved again; ``proofs`` may bring such.
    ONNX Runtime gets ready beside the cleaning, where it will be needed, and stays until the model was rewritten once.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        proof_shapes: ProofShapes | None,
        settings: RewriteSettings,
        proofs: dict[str, Check] | None = None,
    ) -> None:
        self.loaded, self.settings = loaded, settings
        self.rules = select_rules(settings.skip)
        self._runner: OrtRunner | None = OrtRunner()
        weakref.finalize(self, self._runner.close)
        if _is_changed_mostly(loaded.proto):
            self._runner.start(wait=False)
        chosen = () if settings.checkpoint is None else settings.checkpoint.notes
        self.proofs: dict[str, Check] = {} if proofs is None else proofs
        source, self.notes = _provable(loaded.proto)
        self.notes = [*chosen, *self.notes]
        self.was_raised = source is not loaded.proto
        source = without_placeholders(source)
        if settings.fixed is not None:
            source = with_fixed(source, settings.fixed)
        with stage("clean"):
            self.cleaning = clean(source, loaded.folder, self._runner.run)
        repairs, on_request = (tuple(rule for rule in stage if rule in self.rules) for stage in (REPAIRS, ON_REQUEST))
        resolver = Resolver(loaded.folder, proof_shapes, settings, self._runner)
        with stage("resolve"):
            self.resolved = resolver.resolve(self.cleaning, repairs, on_request)
        self.model = self.resolved.cleaning.model
        declared = declared_types(self.model)
        fixed = single_positions(self.model, declared, settings.corners)
        self.declared = with_single_positions(declared, fixed)
        self.notes += [
            f"{name} has one position in every shape of the build profile, and the result holds for these" for name in fixed
        ]
        opened = self.resolved.opened
        exact = None if opened is None else opened.exactly_pinned()
        self.pinned = CompletedTypes(self.model, check_types(self.model, proof_shapes) if exact is None else exact)
        self.tolerant = tolerant_types(self.model, proof_shapes)[0] if opened is None else opened.declared

    def _file_can_serve(self) -> bool:
        """True when ONNX Runtime runs the file itself, with the meaning that the model was given."""
        return self.loaded.runs_unmended and not self.was_raised and not self.resolved.differs_from_the_file

    def rewrite(
        self,
        optimize: Optimize | None = None,
        left_out: frozenset[str] = frozenset(),
        measured: bool = False,
        foreseen: Foreseen | None = None,
    ) -> Rewriting:
        """Apply the rules; the arguments say which optional changes are wanted, as in ``RewriteSettings``.

        The first one of a rule that may have a kernel of its own is ``foreseen`` before it is proved.
        """
        wanted = self.settings.optimize
        counted = wanted == "kernels"
        policy = optimize or wanted
        resolved, folder, model = self.resolved, self.loaded.folder, self.model
        settings = replace(
            self.settings,
            optimize=policy,
            left_out=left_out,
            measured=measured or counted,
            counted=counted,
            asked=set(),
        )
        opened, resolved.opened = resolved.opened, None
        # Nothing changes a graph before the rules are applied, so the first application takes the one that is open already.
        waiting = [open_model(model, folder) if opened is None else opened.surgery]
        surgery = waiting[0]
        cache = Cache()
        with stage("find-norms"):
            spoilt = audit(surgery, self.tolerant, settings, SPOILT)
            composites, unread = _composites(surgery, self.declared, cache)
        runner, self._runner = self._runner or OrtRunner(), None
        with runner:
            prover: Prove = late_prover(runner, self.pinned, self.proofs)
            if foreseen is not None:
                prover = _telling(foreseen, prover)
            surgery, outcome = apply_steadily(
                lambda: waiting.pop() if waiting else open_model(model, folder),
                self.rules,
                self.declared,
                prover,
                settings,
                cache,
            )
        with stage("audit"):
            refusals = [*spoilt, *audit(surgery, self.tolerant, settings)]
        refusals = list({refusal.node: refusal for refusal in reversed(refusals)}.values())[::-1]
        decided = {change.node for change in resolved.changes} | {refusal.node for refusal in refusals}
        changes = (*resolved.changes, *outcome.changes)
        unmet = unmet_requests(surgery, settings, changes, outcome.rejections)
        unneeded = _unneeded(self.cleaning.model, settings, decided, resolved.changes)
        result = surgery.close() if outcome.changes else model
        mended = mend_stated_shapes(result) if outcome.changes else []
        if outcome.changes:
            shortcuts_first(result)
        return Rewriting(
            model=result,
            folder=folder,
            cleaning=replace(resolved.cleaning, model=self.cleaning.model),
            changes=changes,
            failed=(*resolved.failed, *outcome.failed),
            rejections=outcome.rejections,
            refusals=tuple(refusals),
            unmet=tuple(unmet),
            meant=None if self._file_can_serve() else redeclared(model, self.loaded.proto),
            effects=tuple(resolved.effects),
            notes=(*self.notes, *mended, *map(str, resolved.effects), *unneeded, *idle_requests(settings, changes, unmet)),
            composites=composites,
            undone=(*unread, *outcome.undone),
            shelves=(*resolved.cleaning.shelves, *resolved.shelves, surgery.shelf),
            follows_measured="measured" in settings.asked,
        )


def _telling(foreseen: Foreseen, prove: Prove) -> Prove:
    """As ``prove``, which tells of the first optional change of each rule before it begins, but for those made in passing."""
    told: set[str] = set()

    def telling(found: Match, realised: Realised) -> Check:
        if found.rule.name not in told and is_optional(found) and not (found.rule.in_passing and found.rule.in_passing(found)):
            told.add(found.rule.name)
            foreseen(found.rule.name)
        return prove(found, realised)

    return telling


def _is_changed_mostly(model: onnx.ModelProto) -> bool:
    """True for a model that is seldom left as it is, so that something will have to be proved."""
    return any(node.op_type in _MOSTLY_CHANGED for node in model.graph.node)


def _composites(
    surgery: Surgery, types: Mapping[str, TensorType], cache: Cache
) -> tuple[tuple[CompositeNorm, ...], list[Undone]]:
    """The normalizations in pieces, for those who ask; no build depends on them."""
    try:
        return composite_norms(surgery, types, cache), []
    except Exception as error:
        return (), [Undone("listing normalizations in pieces", surgery.source.graph.name, breakage(error), "")]


def _provable(model: onnx.ModelProto) -> tuple[onnx.ModelProto, list[str]]:
    """``model``, raised to an opset in which changes can be proved where it is older; and what the user should know of that."""
    opset = default_opset(model.opset_import)
    if opset >= OLDEST:
        return model, []
    raising = raise_old_opset(model)
    if raising.model is None:
        why = f"the model is of opset {opset}, which ONNX Runtime does not run, and cannot be raised: {raising.why_not}"
        return model, [f"{why}. Its normalizations are left to TensorRT, and nothing can be proved"]
    return raising.model, [f"the model is of opset {opset}, which ONNX Runtime does not run; it was raised to opset {OLDEST}"]


def _unneeded(
    cleaned: onnx.ModelProto, settings: RewriteSettings, decided: set[str], repairs: Sequence[Change]
) -> Iterator[str]:
    """Notes about what the user gave without effect. ``decided`` are nodes that were repaired or refused."""
    known = [norm.label for norm in normalizations(cleaned)]
    for node in settings.mismatch:
        if node in known and node not in decided:
            yield f"the build profile says how to read the parameters of {node}, but they fit"
    taken = any(f"read as {CHECKPOINT}" in change.warning for change in repairs)
    if settings.checkpoint is not None and not taken:
        name = settings.checkpoint.path.name
        yield f"--weights {name} was not needed: every normalization's parameters fit, or {name} has no tensor of their names"


def plan(loaded: LoadedModel, settings: RewriteSettings | None = None) -> tuple[Surgery, driver.RewritePlan, Cleaning]:
    """The plan of ``rewrite``, without doing it."""
    settings = settings or RewriteSettings()
    surgery, cleaning = opened_and_cleaned(loaded)
    types, _ = tolerant_types(cleaning.model, None)
    with stage("plan"):
        return surgery, driver.plan(surgery, select_rules(settings.skip), types, settings=settings), cleaning


def opened_and_cleaned(loaded: LoadedModel) -> tuple[Surgery, Cleaning]:
    """The model after cleaning, which is what rules look at."""
    with stage("clean"), OrtRunner() as runner:
        cleaning = clean(_provable(loaded.proto)[0], loaded.folder, runner.run)
    return open_model(cleaning.model, loaded.folder), cleaning


def select_rules(skip: Sequence[str]) -> tuple[Rule, ...]:
    """All rules in order, without those named in ``skip``; an unknown name is a ``UsageProblem``."""
    names = {rule_named(name).name for name in skip}
    return tuple(rule for rule in RULES if rule.name not in names)


def require_valid(source: LoadedModel, result: Path) -> None:
    """Run the ONNX checker with shape inference on the file ``result``, of whose weights it needs the sizes alone.

    What it objects to in ``source`` as well is none of the rewriting's doing. Raises ``RewriteError`` otherwise.
    """
    objection = _objection(result)
    if objection is None or checker_objection(source.proto, full_check=True) is not None or does_not_fit_together(source.proto):
        return
    raise RewriteError(
        f"the rewritten model is not valid ONNX, so nothing was written: {objection}",
        str(source.path),
        "this is a defect in a rewrite rule: please report it with the model",
    )


def _objection(path: Path) -> str | None:
    light = read_model(path)
    return objection_to_file(path, light) or checker_objection(light, full_check=True)
