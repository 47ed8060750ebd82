"""Accidents and normalization modules as text."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from trtnorm_cli.records.export import AccidentRecord, LoadedWeights, NormModule, Severity
from trtnorm_cli.report.accidents import accident_lines, print_accidents, print_weights
from trtnorm_cli.report.norm_modules import print_norm_modules


def accident(module: str, message: str, severity: Severity, hint: str | None = None) -> AccidentRecord:
    return AccidentRecord("any", module, message, severity, hint)


def printed(function, *args) -> list[str]:
    stream = io.StringIO()
    function(Console(file=stream, width=200), *args)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def test_the_same_message_is_said_once_with_the_modules():
    accidents = [accident(f"bn{number}", "untouched", "warning", "load them") for number in range(5)]
    assert accident_lines(accidents, "warning") == ["bn0, bn1, bn2 and 2 more: untouched\nload them"]
    assert accident_lines(accidents, "fixed") == []


def test_what_was_put_right_comes_before_the_warnings():
    accidents = [accident("bn", "doubtful", "warning"), accident("", "evaluated", "fixed")]
    assert printed(print_accidents, accidents) == ["put right: the model: evaluated", "WARNING: bn: doubtful"]


def test_what_is_refused_comes_last_with_how():
    accidents = [accident("bn", "negative", "refused", "load them"), accident("", "evaluated", "fixed")]
    assert printed(print_accidents, accidents) == [
        "put right: the model: evaluated",
        "REFUSED: bn: negative",
        "         load them",
    ]


def test_weights_that_fit_in_part():
    weights = LoadedWeights("w.pt", "0", 3, ("a.b",), ("c",), ("took 'model' of the checkpoint",))
    assert printed(print_weights, weights) == [
        "weights: 3 tensors of w.pt; took 'model' of the checkpoint",
        "WARNING: left as the callable made them: a.b",
        "WARNING: not in the model: c",
    ]
    assert printed(print_weights, None) == []


ROW = NormModule(
    path="layer1.bn",
    type="torch.nn.BatchNorm2d",
    family="batch",
    recognised_by="class",
    shape=(64,),
    groups=None,
    epsilon=1e-5,
    affine=True,
    momentum=0.1,
    dtypes=("float32",),
    statistics="tracked",
    mean=(-0.25, 1.0),
    variance=(0.5, 2.0),
    training=False,
)


def test_the_table_of_normalization_modules():
    lines = printed(print_norm_modules, [ROW], "functions are not seen", True)
    assert lines[1] == "Normalization modules"
    assert " ".join(lines[3].split()) == (
        "layer1.bn torch.nn.BatchNorm2d batch 64 1e-05 yes 0.1 float32 tracked, mean -0.25 to 1, var 0.5 to 2 no"
    )
    assert lines[-1] == "note: functions are not seen"


def test_a_module_known_by_its_name_without_statistics():
    row = replace(ROW, recognised_by="name", family="rms", epsilon=None, momentum=None, statistics="none", mean=None)
    text = " ".join(printed(print_norm_modules, [row], "", True)[3].split())
    assert text == "layer1.bn torch.nn.BatchNorm2d rms (by its name) 64 yes float32 none no"


def test_a_model_without_normalization():
    assert printed(print_norm_modules, [], "none") == ["", "no normalization modules", "note: none"]
