"""Choices of a build: the rewriting that it begins with, which may come instead, and what is said of those left."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trtnorm_cli import engine_making, variant_choice


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


@pytest.mark.parametrize(
    ("policy", "changes", "choice", "again"),
    [
        ("auto", ["a"], None, ((), {"left_out": frozenset("c"), "measured": True})),
        ("kernels", ["a"], SimpleNamespace(chosen=1, no_change=2, left_out=["b"]), "searched"),
        ("auto", [], SimpleNamespace(chosen=1, no_change=2, left_out=["b"]), (("never",), {})),
        ("auto", ["a"], SimpleNamespace(chosen=2, no_change=2, left_out=["b"]), (("never",), {})),
        ("auto", ["a"], SimpleNamespace(chosen=1, no_change=2, left_out=["b"]), (("auto", frozenset({"b"}), True), {})),
    ],
)
def test_to_be_repeated_a_choice_is_taken_over(monkeypatch, policy, changes, choice, again):
    session = SimpleNamespace(rewrite=lambda *given, **named: (given, named))
    monkeypatch.setattr(variant_choice, "with_fewest_kernels", lambda session, variants: "searched")
    job = SimpleNamespace(policy=policy, variants=lambda: None)
    rewriting = SimpleNamespace(changes=changes)
    variant = SimpleNamespace(rewriting=rewriting, choice=choice, measured=True, not_tried=frozenset("c"))
    made = variant_choice.made_again(job, session, variant)
    assert (made if made == "searched" else made.rewriting) == again


@pytest.mark.parametrize(
    ("decides", "settled", "optional", "replaced"),
    [(True, False, True, True), (True, False, False, False), (True, True, True, False), (False, False, True, False)],
)
def test_only_optional_changes_that_nothing_settled_may_go_again(monkeypatch, decides, settled, optional, replaced):
    monkeypatch.setattr(variant_choice, "may_be_chosen", lambda job: decides)
    changes = [SimpleNamespace(optional=False), SimpleNamespace(optional=optional)]
    variant = SimpleNamespace(is_settled=settled, rewriting=SimpleNamespace(changes=changes))
    assert variant_choice.may_be_replaced(None, variant) is replaced


def test_the_refusal_of_quantised_operators_has_the_reasons_of_the_rules_for_them(monkeypatch):
    said = {}
    monkeypatch.setattr(engine_making, "require_known_quantisation", lambda *given, **named: said.update(named))
    rejections = [
        SimpleNamespace(rule=rule, node=f"n{number}", reason="why")
        for number, rule in enumerate(["fold-batchnorm-conv", *["dynamic-matmul-to-float"] * 4])
    ]
    loaded = SimpleNamespace(path="m.onnx")
    job = SimpleNamespace(prepared=SimpleNamespace(profile=None, loaded=loaded), options=SimpleNamespace(backend=None))
    engine_making.require_rewritten(job, SimpleNamespace(rejections=rejections, model=None))
    assert said["reasons"] == [f"dynamic-matmul-to-float at n{number}: why" for number in (1, 2, 3)]


@pytest.mark.parametrize(
    ("policy", "backend", "decide"),
    [("auto", "tensorrt-rtx", True), ("auto", "tensorrt", False), ("never", "tensorrt-rtx", False)],
)
def test_estimates_decide_where_builds_are_quick_and_the_policy_leaves_it_to_them(monkeypatch, policy, backend, decide):
    monkeypatch.setattr(variant_choice, "first_installed", lambda wanted: wanted)
    job = SimpleNamespace(policy=policy, options=SimpleNamespace(backend=backend), prepared=SimpleNamespace(precision=None))
    assert variant_choice.may_be_chosen(job) is decide
