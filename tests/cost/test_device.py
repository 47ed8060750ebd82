"""The table of devices, and devices that a user describes."""

from __future__ import annotations

import pytest

from trtnorm_cli.cost.device import DEFAULT, DEVICES, TYPES, described_device, device_named
from trtnorm_cli.errors import UsageProblem


@pytest.mark.parametrize("device", DEVICES.values(), ids=list(DEVICES))
def test_a_row_of_the_table_is_complete_and_has_a_source(device):
    assert device.source.startswith("https://")
    assert {"float32", "float16", "int8"} <= set(device.operations) <= set(TYPES)
    assert 100e9 < device.bandwidth < 10e12
    assert 8 <= device.multiprocessors <= 200
    assert device.block_memory < device.cache < device.bandwidth


def test_rates_are_in_the_order_of_widths():
    for device in DEVICES.values():
        rates = [device.rate(kind) for kind in ("float32", "float16", "int8", "fp4")]
        assert rates[0] < rates[1] < rates[2], device.name
        assert device.rate("bfloat16") <= device.rate("float16")


def test_a_type_without_a_rate_is_computed_in_the_next():
    ampere, turing = DEVICES["rtx-3060"], DEVICES["t4"]
    assert ampere.rate("fp4") == ampere.rate("fp8") == ampere.rate("float16")
    assert turing.rate("bfloat16") == ampere.rate("int32") / ampere.rate("float32") * turing.rate("float32")


def test_a_device_is_found_by_its_name():
    assert device_named("RTX-4090") is DEVICES["rtx-4090"]
    assert device_named(DEFAULT).name == DEFAULT


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UsageProblem, match="no device 'rtx4090' is known; did you mean 'rtx-4090'") as refusal:
        device_named("rtx4090")
    assert "l4" in (refusal.value.hint or "")


def test_a_described_device_takes_what_is_missing_from_its_neighbour():
    device = described_device(300e9, 50e12, 3e-6)
    assert device.multiprocessors == DEVICES["l4"].multiprocessors
    assert "l4" in device.source
    assert {device.rate(kind) for kind in TYPES} == {50e12}


def test_a_described_device_with_some_rates_has_all():
    device = described_device(1e12, {"float16": 80e12, "int8": 160e12}, 3e-6)
    assert device.rate("bfloat16") == device.rate("float32") == 80e12
    assert device.rate("fp8") == 80e12
