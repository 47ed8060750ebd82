"""The logger of a build, with the severities of TensorRT itself."""

from __future__ import annotations

import pytest

from trtnorm_cli.tensorrt.logger import make_logger

pytestmark = pytest.mark.rtx


@pytest.fixture
def trt():
    import tensorrt_rtx

    return tensorrt_rtx


def test_every_severity_is_heard_and_errors_and_warnings_are_kept(trt):
    heard = []

    def hear(severity: str, message: str) -> bool:
        heard.append((severity, message))
        return True

    logger = make_logger(trt, hear)
    for name, severity in trt.ILogger.Severity.__members__.items():
        logger.log(severity, f"a message of {name}")
    assert heard == [(name, f"a message of {name}") for name in trt.ILogger.Severity.__members__]
    assert {name for name, _ in heard} == {"INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"}
    assert sorted(logger.errors) == ["a message of ERROR", "a message of INTERNAL_ERROR"]
    assert logger.warnings == ["a message of WARNING"]


def test_a_message_that_is_not_wanted_is_dropped(trt):
    logger = make_logger(trt, lambda severity, message: message != "noise")
    for message in ("noise", "a reason"):
        logger.log(trt.ILogger.Severity.ERROR, message)
    assert logger.errors == ["a reason"]


def test_what_tensorrt_says_itself_is_kept(trt):
    logger = make_logger(trt)
    assert not trt.OnnxParser(trt.Builder(logger).create_network(0), logger).parse_from_file("there-is-no-such-file.onnx")
    assert any("there-is-no-such-file" in message for message in logger.errors)
