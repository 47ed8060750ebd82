"""A rewriting session whose models are in the types that TensorRT has."""

from __future__ import annotations

from dataclasses import replace

from trtnorm_cli.precision.wide.absent import require_known_types
from trtnorm_cli.precision.wide.double import has_doubles, without_doubles
from trtnorm_cli.precision.wide.interface import require_float_interface
from trtnorm_cli.profile.rewriting import Optimize, RewriteSettings
from trtnorm_cli.records.types import TypesRecord
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.rewrite.rewriting import Rewriting, RewritingSession


class TypedSession:
    """A ``RewritingSession`` that gives every rewriting the types that TensorRT has, and says in ``types`` what they were."""

    def __init__(self, session: RewritingSession) -> None:
        self._session = session
        require_known_types(session.model, str(session.loaded.path))

    @property
    def settings(self) -> RewriteSettings:
        return self._session.settings

    def rewrite(self, optimize: Optimize | None = None, left_out: frozenset[str] = frozenset()) -> Rewriting:
        """As ``RewritingSession.rewrite`` does it, then typed."""
        return typed(self._session.rewrite(optimize, left_out))


def typed_session(prepared: Prepared) -> TypedSession:
    """The session of a build. Raises ``ProfileError`` where the build profile keeps what TensorRT does not have."""
    require_float_interface(prepared.loaded.proto, prepared.profile)
    return TypedSession(prepared.session())


def typed(rewriting: Rewriting) -> Rewriting:
    """``rewriting`` with a model in the types that TensorRT has; itself where it has no others."""
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
