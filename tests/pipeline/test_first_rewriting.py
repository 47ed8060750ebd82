"""The rewriting that a build begins with, by the policy and the backend."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trtnorm_cli import variant_choice


@pytest.mark.parametrize(
    ("policy", "backend", "quick", "measured"),
    [
        ("auto", "tensorrt-rtx", True, True),
        ("auto", "tensorrt-rtx", False, False),
        ("auto", "tensorrt", True, False),
        ("never", "tensorrt-rtx", True, False),
        ("kernels", "tensorrt-rtx", True, False),
    ],
)
def test_changes_to_be_measured_are_tried_where_builds_are_quick_and_decide(monkeypatch, policy, backend, quick, measured):
    session = SimpleNamespace(settings=SimpleNamespace(optimize=policy), rewrite=lambda measured=False: measured)
    monkeypatch.setattr(variant_choice, "typed_session", lambda prepared: session)
    monkeypatch.setattr(variant_choice, "first_installed", lambda wanted: wanted)
    monkeypatch.setattr(variant_choice, "may_be_quick", lambda model, bounds: quick)
    prepared = SimpleNamespace(loaded=SimpleNamespace(proto=None))
    assert variant_choice.first_rewriting(prepared, backend) is measured
