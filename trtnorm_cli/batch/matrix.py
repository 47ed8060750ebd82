"""The jobs of a plan: every model with each of its build profiles and precisions, for each target, with the exceptions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from trtnorm_cli.batch.job import Job, JobSettings
from trtnorm_cli.batch.plan import Override, Plan, PlannedModel, PlannedProfile, PlannedTarget, Selection
from trtnorm_cli.profile.problems import Problem, refusal
from trtnorm_cli.suggest import did_you_mean, listing
from trtnorm_cli.target import is_pytorch

_GLOB = frozenset("*?[")
_KEYS = ("timeout", "memory", "compare", "seed", "snap")
NOTHING = "-"


def jobs_of(plan: Plan) -> tuple[Job, ...]:
    """The jobs of ``plan``, by name. Raises ``ProfileError`` where a name in it is not known, or fits nothing."""
    models = dict(_models(plan))
    problems = list(_unknown_names(plan, models))
    if problems:
        raise refusal(problems, plan.positions)
    everything = [job for name, model in models.items() for job in _of_model(plan, name, model)]
    made = {job.name: job for job in everything}
    if len(made) < len(everything):
        alike = next(name for name in made if sum(job.name == name for job in everything) > 1)
        raise refusal(
            [Problem(("models",), f"two jobs are called {alike!r}", "give a part of one another name")], plan.positions
        )
    problems = list(_idle_exclusions(plan, everything))
    made = {name: job for name, job in made.items() if not any(_fits(one, job) for one in plan.exclude)}
    for inclusion in plan.include:
        for name, model in models.items():
            if fnmatchcase(name, inclusion.model) or fnmatchcase(model.group, inclusion.model):
                job = _job(plan, name, model, inclusion.profile, inclusion.precision, inclusion.target)
                made[job.name] = job
    problems += _idle_overrides(plan, list(made.values()))
    if not made:
        problems.append(Problem((), "the plan has no jobs: all are excluded", "leave out an entry of 'exclude'"))
    if problems:
        raise refusal(problems, plan.positions)
    return tuple(_overridden(job, plan.overrides) for job in made.values())


class _Model:
    """One model of the plan: an entry, or one file of its pattern."""

    def __init__(self, group: str, entry: PlannedModel, spec: str, stem: str) -> None:
        self.group, self.entry, self.spec, self.stem = group, entry, spec, stem


def _models(plan: Plan) -> Iterator[tuple[str, _Model]]:
    """Each model by its name. Raises ``ProfileError`` where a pattern fits no file, or two models have one name."""
    seen: dict[str, str] = {}
    for group, entry in plan.models.items():
        for name, model in _expanded(plan, group, entry):
            if name in seen:
                where = ("models", group)
                raise refusal(
                    [Problem(where, f"two models are called {name!r}: {seen[name]} and {model.spec}", "give one another name")],
                    plan.positions,
                )
            seen[name] = model.spec
            yield name, model


def _expanded(plan: Plan, group: str, entry: PlannedModel) -> Iterator[tuple[str, _Model]]:
    spec = entry.model
    if is_pytorch(spec):
        location, colon, attribute = spec.rpartition(":")
        where = location if colon and location.endswith(".py") else spec
        located = str(plan.folder / where) if where.endswith((".py", ".pt2")) else where
        yield group, _Model(group, entry, f"{located}:{attribute}" if where == location else located, Path(where).stem)
        return
    if not _GLOB & set(spec):
        yield group, _Model(group, entry, str(plan.folder / spec), Path(spec).stem)
        return
    files = sorted(_found(plan.folder, spec))
    if not files:
        what = f"no file fits the pattern {spec!r}"
        raise refusal([Problem(("models", group), what, f"it is relative to {plan.folder.absolute()}")], plan.positions)
    fixed = _fixed_part(Path(spec))
    for file in files:
        relative = file.relative_to(plan.folder / fixed) if not Path(spec).is_absolute() else file.relative_to(fixed)
        yield "-".join(relative.with_suffix("").parts), _Model(group, entry, str(file), file.stem)


def _found(folder: Path, pattern: str) -> Iterator[Path]:
    path = Path(pattern)
    root, inner = (Path(path.anchor), str(path.relative_to(path.anchor))) if path.is_absolute() else (folder, pattern)
    return (file for file in root.glob(inner) if file.is_file())


def _fixed_part(pattern: Path) -> Path:
    """The folders of a pattern before its first sign."""
    parts = []
    for part in pattern.parts[:-1]:
        if _GLOB & set(part):
            break
        parts.append(part)
    return Path(*parts)


def _of_model(plan: Plan, name: str, model: _Model) -> Iterator[Job]:
    entry = model.entry
    alone: tuple[str | None, ...] = (None,)
    profiles = alone if entry.profile is not None else entry.profiles or tuple(plan.profiles) or alone
    for profile in profiles:
        for precision in entry.precisions or plan.precisions or alone:
            for target in entry.targets or tuple(plan.targets) or alone:
                yield _job(plan, name, model, profile, precision, target)


def _job(plan: Plan, name: str, model: _Model, profile: str | None, precision: str | None, target: str | None) -> Job:
    entry = model.entry
    planned = PlannedProfile() if profile is None else plan.profiles[profile]
    file = planned.file
    if profile is None and entry.profile is not None:
        file = entry.profile.replace("{stem}", model.stem)
    aim = PlannedTarget() if target is None else plan.targets[target]
    own_targets = {} if aim.targets is None else {"builder": {"targets": list(aim.targets)}}
    settings = merged(merged(planned.settings, own_targets), aim.settings)
    resources = {**({} if aim.gpu is None else {f"GPU_{aim.gpu}": 1.0}), **aim.resources}
    parts = [name, *(part for part in (profile, precision, target) if part is not None)]
    given = {**_given(plan), **_given(entry)}
    return Job(
        name=".".join(parts),
        group=model.group,
        model=name,
        spec=model.spec,
        profile=profile or NOTHING,
        profile_path=None if file is None else str(plan.folder / file),
        settings=settings,
        precision=precision,
        target=target or NOTHING,
        backend=aim.backend,
        gpu=aim.gpu,
        resources=resources,
        weights=None if entry.weights is None else str(plan.folder / entry.weights),
        files=tuple(str(plan.folder / file) for file in entry.files),
        exporter=entry.exporter,
        opset=entry.opset,
        accept=entry.accept,
        strict=entry.strict,
        verify=entry.verify,
        how=JobSettings(**given),
    )


def _given(section: Any) -> dict[str, Any]:
    return {key: value for key in _KEYS if (value := getattr(section, key)) is not None}


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings put over each other, key by key; a list or a value takes the place of what was there."""
    result = dict(below)
    for key, value in above.items():
        held = result.get(key)
        result[key] = merged(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return result


def _overridden(job: Job, overrides: Iterable[Override]) -> Job:
    for override in overrides:
        if _fits(override.match, job):
            how = replace(job.how, **_given(override))
            job = replace(job, settings=merged(job.settings, override.settings), how=how)
    return job


def _fits(selection: Selection, job: Job) -> bool:
    parts = {"model": (job.model, job.group), "profile": (job.profile,), "target": (job.target,)}
    parts["precision"] = (job.precision or NOTHING,)
    return all(any(fnmatchcase(part, pattern) for part in parts[key]) for key, pattern in selection.parts().items())


def _unknown_names(plan: Plan, models: Mapping[str, _Model]) -> Iterator[Problem]:
    known = {"profile": list(plan.profiles), "target": list(plan.targets)}
    for group, entry in plan.models.items():
        for key, names in (("profiles", entry.profiles), ("targets", entry.targets)):
            for index, name in enumerate(names or ()):
                if name not in known[key.removesuffix("s")]:
                    yield _unknown(("models", group, key, index), key, name, known[key.removesuffix("s")])
    for index, one in enumerate(plan.include):
        named = [*models, *(model.group for model in models.values())]
        if not any(fnmatchcase(name, one.model) for name in named):
            yield _unknown(("include", index, "model"), "models", one.model, named)
        for key in ("profile", "target"):
            name = getattr(one, key)
            if name is not None and name not in known[key]:
                yield _unknown(("include", index, key), f"{key}s", name, known[key])


def _unknown(path: tuple[str | int, ...], section: str, name: str, known: Iterable[str]) -> Problem:
    listed = list(dict.fromkeys(known))
    text = f"{name!r} is not among the plan's {section}{did_you_mean(name, listed)}"
    return Problem(path, text, f"it has {listing(listed) or 'none'}")


def _idle_exclusions(plan: Plan, jobs: list[Job]) -> Iterator[Problem]:
    for index, one in enumerate(plan.exclude):
        if not any(_fits(one, job) for job in jobs):
            yield Problem(("exclude", index), "it fits no job, and leaves out none", _parts_hint(jobs))


def _idle_overrides(plan: Plan, jobs: list[Job]) -> Iterator[Problem]:
    for index, one in enumerate(plan.overrides):
        if not any(_fits(one.match, job) for job in jobs):
            yield Problem(("overrides", index, "match"), "it fits no job", _parts_hint(jobs))


def _parts_hint(jobs: list[Job]) -> str:
    named = {
        "models": dict.fromkeys(job.model for job in jobs),
        "profiles": dict.fromkeys(job.profile for job in jobs),
        "precisions": dict.fromkeys(job.precision or NOTHING for job in jobs),
        "targets": dict.fromkeys(job.target for job in jobs),
    }
    return "; ".join(f"{key}: {listing(names, 8)}" for key, names in named.items())
