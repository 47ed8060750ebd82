"""The ``builder:`` section: spellings, ranges, and what is left out on purpose."""

from __future__ import annotations

import pytest

from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile.builder import LEFT_OUT
from trtnorm_cli.profile.load import parse_profile


@pytest.mark.parametrize("text", ["[sm_86, sm_120]", "[sm86, SM120]", "[8.6, 12.0]", "['8.6', '12.0']"])
def test_spellings_of_targets(text):
    assert parse_profile(f"builder: {{targets: {text}}}").builder.targets == ("sm_86", "sm_120")


@pytest.mark.parametrize(("text", "key", "message"), [
    ("{targets: sm_86}", "targets", "expected a list of compute capabilities"),
    ("{targets: []}", "targets", "expected a list of compute capabilities"),
    ("{targets: [86]}", "targets[0]", "86 is no compute capability"),
    ("{targets: [sm_86, gpu]}", "targets[1]", "'gpu' is no compute capability"),
    ("{targets: [sm_86, 8.6]}", "targets[1]", "sm_86 stands twice"),
    ("{dla_core: 0}", "dla_core", "engines for DLA cores are not built by trtnorm"),
    ("{fp16: true}", "fp16", "types follow the model"),
    ("{l2_limit: 2MiB}", "l2_limit", "it limits tiling, and tiling is off"),
    ("{tiling: none, l2_limit: 2MiB}", "l2_limit", "it limits tiling, and tiling is off"),
    ("{exclude_lean_runtime: true}", "exclude_lean_runtime", "the engine is not version-compatible"),
    ("{tiling: most}", "tiling", "expected 'none', 'fast', 'moderate' or 'full'"),
    ("{max_aux_streams: -1}", "max_aux_streams", "-1 is below 0"),
    ("{timing_cache: ''}", "timing_cache", "the text is empty"),
])  # fmt: skip
def test_a_mistake_is_named_with_its_key(text, key, message):
    with pytest.raises(ProfileError) as caught:
        parse_profile(f"builder: {text}", "c.yaml")
    assert caught.value.exit_code == 2
    assert caught.value.where == f"c.yaml:1: builder.{key}"
    assert message in caught.value.summary


def test_what_is_left_out_says_what_to_do():
    for key, reason in LEFT_OUT.items():
        with pytest.raises(ProfileError, match=reason[:30]):
            parse_profile(f"builder: {{{key.upper()}: 1}}")


def test_misspellings_are_recognised():
    with pytest.raises(ProfileError, match="did you mean 'max_aux_streams'"):
        parse_profile("builder: {max_aux_stream: 1}")
