"""What a serialized engine says about its targets."""

from __future__ import annotations

import pytest

from trtnorm_cli.tensorrt.child.plan import CompiledFor, compiled_for


@pytest.mark.parametrize(("content", "expected"), [
    (b"..hardware_forward_compatibility=1\0..accelerators={sm80 }..", CompiledFor(("sm_80",), True)),
    (b"hardware_forward_compatibility=0 accelerators={sm86 sm120 } accelerators={*}", CompiledFor(("sm_86", "sm_120"), False)),
    (b"accelerators={*}", None), (b"", None), (b"vtrt" * 10, None),
])  # fmt: skip
def test_what_it_was_compiled_for(tmp_path, content, expected):
    (tmp_path / "a.engine").write_bytes(content)
    assert compiled_for(tmp_path / "a.engine") == expected
