"""The rows of builder settings: which backend lacks what, what is said then, and what is applied."""

from __future__ import annotations

import pytest

from tests.tensorrt.releases import RELEASES, config_of, stand_in
from trtnorm_cli.tensorrt.settings import SETTINGS, Setting, apply_settings, faults_of, notes_of

ROWS = {row.key: row for row in SETTINGS}
NEWEST_RTX = stand_in(next(release for release in reversed(RELEASES) if release.startswith("tensorrt-rtx")))


def test_each_row_has_a_way_out_where_something_may_be_lacking():
    assert all(row.instead or row.harmless for row in SETTINGS if row.needs or row.needs_for)


@pytest.mark.parametrize(
    ("needs", "needs_for", "value", "capabilities", "lacks"),
    [
        ("", {}, 1, (), False),
        ("a", {}, 1, (), True),
        ("a", {}, 1, ("a",), False),
        ("a", {}, 1, ("b",), True),
        ("", {2: "b"}, 1, (), False),
        ("", {2: "b"}, 2, (), True),
        ("a", {2: "b"}, 2, ("a",), True),
        ("a", {2: "b"}, 2, ("b",), True),
        ("a", {2: "b"}, 2, ("a", "b"), False),
        ("", {}, [1], (), False),
    ],
)
def test_a_setting_is_lacking_where_it_or_its_value_needs_what_is_not_there(needs, needs_for, value, capabilities, lacks):
    row = Setting("key", lambda config, value, trt: None, needs=needs, needs_for=needs_for)
    assert row.lacks(value, frozenset(capabilities)) is lacks


LEAN = "x comes without the lean runtime, libnvinfer_lean"


@pytest.mark.parametrize(
    ("settings", "capabilities", "faults"),
    [
        ({}, (), []),
        ({"workspace": 1}, (), []),
        ({"tiling": "fast"}, (), [("tiling", "x does not have tiling")]),
        ({"tiling": "fast"}, ("tiling",), []),
        ({"l2_limit": 1}, ("targets",), [("l2_limit", "x does not have l2_limit")]),
        ({"timing_cache": "a"}, (), []),
        (
            {"hardware_compatibility": "same_compute_capability"},
            ("hardware compatibility",),
            [("hardware_compatibility", "x does not have hardware_compatibility: same_compute_capability")],
        ),
        ({"hardware_compatibility": "ampere_plus"}, ("hardware compatibility",), []),
        ({"version_compatible": True}, (), [("version_compatible", LEAN)]),
        ({"version_compatible": True}, ("lean runtime",), []),
        ({"version_compatible": False}, (), []),
        ({"exclude_lean_runtime": False}, (), []),
        ({"version_compatible": True, "exclude_lean_runtime": True}, (), []),
        ({"version_compatible": True, "exclude_lean_runtime": False}, (), [("version_compatible", LEAN)]),
        ({"targets": ["sm_86"]}, (), [("targets", "x does not have targets")]),
        ({"targets": ["sm_86", "sm_80"]}, ("targets",), []),
        ({"targets": ["sm_86", "sm_70"]}, ("targets",), [("targets", "x does not compile for sm_70")]),
    ],
)
def test_a_setting_that_the_backend_does_not_take_is_a_fault_with_a_way_out(settings, capabilities, faults):
    found = faults_of(settings, "x", frozenset(capabilities), ("sm_80", "sm_86"))
    assert [(fault.key, fault.message) for fault in found] == faults
    for fault in found:
        other = "it compiles for sm_80, sm_86" if "compile for" in fault.message else ROWS[fault.key].instead
        assert fault.instead == other


@pytest.mark.parametrize(
    ("settings", "capabilities", "keys"),
    [
        ({}, (), []),
        ({"timing_cache": "a"}, ("timing cache",), []),
        ({"timing_cache": "a", "tiling": "fast", "workspace": 1}, (), ["timing_cache"]),
    ],
)
def test_a_setting_without_effect_is_noted(settings, capabilities, keys):
    said = [f"builder.{key} is ignored by x: {ROWS[key].harmless}" for key in keys]
    assert notes_of(settings, "x", frozenset(capabilities)) == said


@pytest.mark.parametrize(("value", "called"), [(True, "set_flag"), (False, "clear_flag")])
@pytest.mark.parametrize("key", ["tf32", "sparse_weights", "refit", "strip_plan", "weight_streaming"])
def test_a_flag_is_set_or_cleared_as_it_is_asked_for(key, value, called):
    config = config_of(NEWEST_RTX)
    apply_settings(config, {key: value}, NEWEST_RTX)
    assert (called, getattr(NEWEST_RTX.BuilderFlag, key.upper())) in config.noted


def test_a_target_that_tensorrt_turns_down_is_an_error():
    """Where it is taken nothing is said."""
    config = config_of(NEWEST_RTX)
    apply_settings(config, {"targets": ["sm_86"]}, NEWEST_RTX)

    class Refusing:
        def set_compute_capability(self, target: int, index: int) -> bool:
            return index == 0

    with pytest.raises(ValueError, match="TensorRT does not take the compute capability sm_120"):
        ROWS["targets"].apply(Refusing(), ["sm_86", "sm_120"], NEWEST_RTX)
