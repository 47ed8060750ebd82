"""``device``: what is taken, and every mistake with its line and what to do."""

from __future__ import annotations

import pytest

from tests.profile.texts import refused
from trtnorm_cli.cost.device import DEFAULT, DEVICES, LAUNCH
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model import BuildProfile, json_schema


def test_the_default_is_the_table_s():
    assert BuildProfile().target_device is DEVICES[DEFAULT]


@pytest.mark.parametrize("text", ["device: rtx-4090", "device: RTX-4090"])
def test_a_name(text):
    profile = parse_profile(text)
    assert profile.target_device is DEVICES["rtx-4090"]
    assert BuildProfile.model_validate(profile.model_dump(mode="json")) == profile


def test_a_description_with_one_rate():
    profile = parse_profile("device: {bandwidth_gb_s: 448, peak_tflops: 65, launch_us: 3}")
    device = profile.target_device
    assert (device.bandwidth, device.rate("int8"), device.launch) == pytest.approx((448e9, 65e12, 3e-6))
    assert BuildProfile.model_validate(profile.model_dump(mode="json")) == profile


def test_a_description_with_rates_by_type_and_the_usual_launch():
    device = parse_profile("device:\n  bandwidth_gb_s: 448\n  peak_tflops: {fp16: 65, int8: 130}").target_device
    assert (device.rate("float16"), device.rate("int8"), device.launch) == pytest.approx((65e12, 130e12, LAUNCH))


@pytest.mark.parametrize(
    ("text", "where", "summary", "hint"),
    [
        (
            "device: rtx4090",
            "cfg.yaml:1: device",
            "no device 'rtx4090' is known; did you mean 'rtx-4090'?",
            "or describe yours",
        ),
        ("dims: {}\ndevice: 5", "cfg.yaml:2: device", "expected the name of a device or a mapping, got 5", "one of rtx-3060"),
        ("device:", "cfg.yaml:1: device", "expected the name of a device or a mapping, got no value", "one of rtx-3060"),
        ("device: {name: l4}", "cfg.yaml:1: device", "a device of the table is its name alone", "write device: l4"),
        ("device: {bandwidth_gb_s: 300}", "cfg.yaml:1: device", "the key 'peak_tflops' is missing", None),
        (
            "device: {bandwidth_gbs: 300, peak_tflops: 5}",
            "cfg.yaml:1: device",
            "unknown key 'bandwidth_gbs'; did you mean 'bandwidth_gb_s'?",
            None,
        ),
        (
            "device: {bandwidth_gb_s: 300.0e+9, peak_tflops: 5}",
            "cfg.yaml:1: device.bandwidth_gb_s",
            "3e+11 GB/s is more than any memory has; the unit is 10⁹ bytes a second",
            "write 300",
        ),
        (
            "device: {bandwidth_gb_s: 300, peak_tflops: {flot16: 1}}",
            "cfg.yaml:1: device.peak_tflops",
            "'flot16' is no type with a rate; did you mean 'float16'?",
            "one of float32, float16",
        ),
        (
            "device: {bandwidth_gb_s: 300, peak_tflops: {int8: -3}}",
            "cfg.yaml:1: device.peak_tflops.int8",
            "-3 is not between 0 and 1e+06 tera-operations a second",
            None,
        ),
        (
            "device: {bandwidth_gb_s: 300, peak_tflops: {int8: true}}",
            "cfg.yaml:1: device.peak_tflops.int8",
            "expected tera-operations a second, got true",
            None,
        ),
        (
            "device: {bandwidth_gb_s: 300, peak_tflops: many}",
            "cfg.yaml:1: device.peak_tflops",
            "expected tera-operations a second, got the text 'many'; or give them by type, as {float16: 51, int8: 102}",
            None,
        ),
        (
            "device: {bandwidth_gb_s: 300, peak_tflops: {}}",
            "cfg.yaml:1: device.peak_tflops",
            "the mapping is empty",
            "give one number",
        ),
        ("device: {bandwidth_gb_s: 0, peak_tflops: 1}", "cfg.yaml:1: device.bandwidth_gb_s", "0 is not above 0", None),
    ],
)
def test_mistakes(text, where, summary, hint):
    error = refused(text)
    assert (error.where, error.summary) == (where, summary)
    assert hint is None or hint in (error.hint or "")


def test_editors_are_told_the_names():
    named, described = json_schema()["properties"]["device"]["anyOf"]
    assert named["enum"] == list(DEVICES)
    assert described["$ref"].endswith("DescribedDevice")
