"""Build profiles as text: parts of them, and how one is refused."""

from __future__ import annotations

import pytest

from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile.load import parse_profile


def with_inputs(*lines: str) -> str:
    """A profile with one optimization profile whose inputs are ``lines``."""
    return "optimization_profiles:\n  - inputs:\n" + "".join(f"      {line}\n" for line in lines)


def refused(text: str) -> ProfileError:
    """The error of reading ``text``."""
    with pytest.raises(ProfileError) as caught:
        parse_profile(text, "cfg.yaml")
    return caught.value


def printed(error: ProfileError) -> list[str]:
    """The lines that the command line prints for ``error``, without the hint."""
    return f"{error.where}: {error.summary}".splitlines()


def refusal_of(text: str) -> str:
    """What the command line prints for ``text``, without the hint."""
    return "\n".join(printed(refused(text)))
