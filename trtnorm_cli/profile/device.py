"""The GPU that costs are estimated for, by its name in the table or by what its data sheet says."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from trtnorm_cli.cost.device import DEVICES, LAUNCH, TYPES, Device, described_device, device_named, unknown_device
from trtnorm_cli.profile.dims import described
from trtnorm_cli.profile.problems import Problem, invalid
from trtnorm_cli.profile.ranges import ProfileSection
from trtnorm_cli.suggest import did_you_mean, listing

_EXAMPLE = "{bandwidth_gb_s: 360, peak_tflops: 51}"
_MOST_GB_S, _MOST_TFLOPS = 100_000.0, 1e6
_SHORT = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_RATE_SCHEMA = {"type": "number", "exclusiveMinimum": 0, "maximum": _MOST_TFLOPS}


def read_rates(value: object) -> Any:
    """Tera-operations a second, one number for all types or by type. Raises a pydantic ``ValidationError``."""
    if not isinstance(value, dict):
        if fault := _rate_fault(value):
            raise invalid([Problem((), f"{fault}; or give them by type, as {{float16: 51, int8: 102}}")], value)
        return value
    rates = {_SHORT.get(str(kind), kind): rate for kind, rate in value.items()}
    problems = [
        Problem((), f"{kind!r} is no type with a rate{did_you_mean(str(kind), TYPES)}", f"one of {listing(TYPES)}")
        for kind in rates
        if kind not in TYPES
    ]
    problems += [Problem((kind,), fault) for kind, rate in value.items() if (fault := _rate_fault(rate))]
    if not value:
        problems.append(Problem((), "the mapping is empty", f"give one number, or rates by type: {listing(TYPES)}"))
    if problems:
        raise invalid(problems, value)
    return rates


def _bandwidth(value: float) -> float:
    if value > _MOST_GB_S:
        hint = f"write {value / 1e9:g}" if 1e9 < value < _MOST_GB_S * 1e9 else None
        raise invalid([Problem((), f"{value:g} GB/s is more than any memory has; the unit is 10⁹ bytes a second", hint)], value)
    return value


def _rate_fault(rate: object) -> str | None:
    if isinstance(rate, bool) or not isinstance(rate, (int, float)):
        return f"expected tera-operations a second, got {described(rate)}"
    return None if 0 < rate <= _MOST_TFLOPS else f"{rate:g} is not between 0 and {_MOST_TFLOPS:g} tera-operations a second"


Rates = Annotated[
    float | dict[str, float],
    BeforeValidator(read_rates),
    WithJsonSchema(
        {
            "anyOf": [
                _RATE_SCHEMA,
                {"type": "object", "properties": dict.fromkeys((*TYPES, *_SHORT), _RATE_SCHEMA), "additionalProperties": False},
            ]
        }
    ),
]


class DescribedDevice(ProfileSection):
    """A GPU that is not in the table."""

    bandwidth_gb_s: Annotated[float, Field(gt=0, allow_inf_nan=False), AfterValidator(_bandwidth)] = Field(
        description="Of device memory, in 10⁹ bytes a second."
    )
    peak_tflops: Rates = Field(
        description="10¹² operations a second without sparsity, a multiply-add as two: one number, or by type."
    )
    launch_us: float = Field(
        default=LAUNCH * 1e6, ge=0, le=1000, allow_inf_nan=False, description="The least time of a kernel, in microseconds."
    )

    def device(self) -> Device:
        rates = self.peak_tflops
        operations = {kind: rate * 1e12 for kind, rate in rates.items()} if isinstance(rates, dict) else rates * 1e12
        return described_device(self.bandwidth_gb_s * 1e9, operations, self.launch_us * 1e-6)


def read_device(value: object) -> Any:
    """A name from the table, as it stands there, or a description. Raises a pydantic ``ValidationError``."""
    if isinstance(value, DescribedDevice):
        return value
    if isinstance(value, dict):
        if list(value) == ["name"]:
            raise invalid([Problem((), "a device of the table is its name alone", f"write device: {value['name']}")], value)
        return DescribedDevice.model_validate(value)
    hint = f"one of {listing(DEVICES, 20)}; or describe yours, as {_EXAMPLE}"
    if not isinstance(value, str):
        raise invalid([Problem((), f"expected the name of a device or a mapping, got {described(value)}", hint)], value)
    if value.casefold() not in DEVICES:
        raise invalid([Problem((), unknown_device(value), hint)], value)
    return value.casefold()


def device_of(choice: str | DescribedDevice) -> Device:
    """The device that a profile's ``device`` says."""
    return choice.device() if isinstance(choice, DescribedDevice) else device_named(choice)


_Name = Annotated[str, WithJsonSchema({"type": "string", "enum": list(DEVICES)})]
DeviceChoice = Annotated[_Name | DescribedDevice, BeforeValidator(read_device)]
