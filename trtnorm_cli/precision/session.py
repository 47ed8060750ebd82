"""A rewriting session whose models are in the types that TensorRT has."""

from __future__ import annotations

from dataclasses import replace

import onnx

from trtnorm_cli.precision.wide.absent import require_known_types
from trtnorm_cli.precision.wide.double import has_doubles, without_doubles
from trtnorm_cli.precision.wide.integer_proof import difference
from trtnorm_cli.precision.wide.integers import narrow_integers
from trtnorm_cli.precision.wide.interface import require_float_interface
from trtnorm_cli.profile.prove import sizes_of
from trtnorm_cli.profile.rewriting import Optimize, RewriteSettings
from trtnorm_cli.records.types import NarrowedIntegers, TypesRecord
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.rewrite.rewriting import Foreseen, Rewriting, RewritingSession


class TypedSession:
    """A ``RewritingSession`` that gives every rewriting the types that TensorRT has, and says in ``types`` what they were."""

    def __init__(self, session: RewritingSession, prepared: Prepared) -> None:
        self._session, self._prepared = session, prepared
        require_known_types(session.model, str(session.loaded.path))

    @property
    def settings(self) -> RewriteSettings:
        return self._session.settings

    @property
    def model(self) -> onnx.ModelProto:
        return self._session.model

    def rewrite(
        self,
        optimize: Optimize | None = None,
        left_out: frozenset[str] = frozenset(),
        measured: bool = False,
        foreseen: Foreseen | None = None,
    ) -> Rewriting:
        """As ``RewritingSession.rewrite`` does it, then typed."""
        rewriting = without_doubles_in(self._session.rewrite(optimize, left_out, measured, foreseen))
        profile = self._prepared.profile
        if profile is None or profile.int64 == "keep":
            return rewriting
        return with_narrow_integers(rewriting, self._prepared)


def typed_session(prepared: Prepared) -> TypedSession:
    """The session of a build. Raises ``ProfileError`` where the build profile keeps what TensorRT does not have."""
    require_float_interface(prepared.loaded.proto, prepared.profile)
    return TypedSession(prepared.session(), prepared)


def without_doubles_in(rewriting: Rewriting) -> Rewriting:
    """``rewriting`` with float32 in the place of double; itself where there is none."""
    if not has_doubles(rewriting.model):
        return rewriting
    narrowed = without_doubles(rewriting.model, rewriting.folder)
    return replace(
        rewriting,
        model=narrowed.model,
        wide=rewriting.model,
        types=TypesRecord(doubles=narrowed.doubles),
        shelves=(*rewriting.shelves, narrowed.shelf),
    )


def with_narrow_integers(rewriting: Rewriting, prepared: Prepared) -> Rewriting:
    """``rewriting`` with int32 in the place of int64 where that is proved and gives the same in a run."""
    narrowed = narrow_integers(rewriting.model, rewriting.folder, largest_sizes(prepared))
    model, record = narrowed.model, narrowed.record
    if record.nodes:
        why_not = difference(prepared, rewriting.model, model, rewriting.folder)
        if why_not is not None:
            model, record = rewriting.model, NarrowedIntegers(kept=record.kept, undone=why_not)
    types = replace(rewriting.types or TypesRecord(), integers=record)
    return replace(rewriting, model=model, types=types)


def largest_sizes(prepared: Prepared) -> dict[str, int]:
    """The largest size of every symbol over all optimization profiles."""
    assert prepared.proof is not None, "a build has sizes"
    found: dict[str, int] = {}
    for profile in prepared.fitted.profiles:
        for name, corners in sizes_of(profile, prepared.proof.inputs).items():
            found[name] = max(found.get(name, 0), *map(abs, corners))
    return found
