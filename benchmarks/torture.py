"""Break builds in every way that the machine permits, check what they leave, and write docs/faults.md.

    python -m benchmarks.torture MODEL.onnx PROFILE.yaml -o build/torture -p docs/faults.md

Each case builds a model over an earlier engine and its manifest in a folder of its own, and does something to that build. Then
it checks that engine and manifest belong together, that a failed build left the earlier pair as it was, that no process and no
file is left but those that the message names, and that the next build works.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.torture_cases import cases
from benchmarks.torture_run import Arena, Case, Outcome, earlier_pair, tried

HEAD = """# Faults

What becomes of a build that is killed, interrupted or robbed of its disk. `make torture` makes this page: each try builds
{model} over an earlier engine and its manifest, and something happens to it at the stage that is named. `compare`, `diff` and a
`batch` of two jobs work on a chain of 12 convolutions with BatchNormalizations.
{versions}.

`tests/test_placing.py` stops the last step, in which files get their names, at each operation on a file: by SIGKILL, by an
error, by errors from there on, and by an interrupt.

After each try `benchmarks/torture.py` checks that:

- engine and manifest are of one build, or there is no manifest; a file has its final name only when it is complete;
- on every exit code but 0 the earlier pair is the same file with the same bytes. Of a build that SIGKILL ends just while files
  get their names, the engine may be left without its manifest: nothing can be undone then;
- no process of the build runs on, and no file of it is left but the folder that its message names. Of one that SIGKILL ends,
  files are left until the next build, which removes them;
- nothing ends with a traceback or is called a defect;
- the next build works, and leaves nothing.

"""


def page(outcomes: Iterable[Outcome], model: str, used: str) -> str:
    """The page: a row for each kind of fault, with what was tried and what came of it."""
    known = list(outcomes)
    tried_cases = [one for one in known if one.skipped is None]
    kinds = list(dict.fromkeys(one.kind for one in known))
    lines = ["| kind of fault | tries | tried | outcome |", "|---|---|---|---|"]
    for kind in kinds:
        mine = [one for one in tried_cases if one.kind == kind]
        if mine:
            lines.append(f"| {kind} | {len(mine)} | {'; '.join(one.label for one in mine)} | {_ends(mine)} |")
    bad = [one for one in tried_cases if one.problems]
    lines += ["", f"{len(tried_cases)} tries, {len(bad)} of which broke one of these promises."]
    lines += [f"- {one.kind}, {one.label}: {'; '.join(one.problems)}" for one in bad]
    lines += [f"- not tried: {one.kind}, {one.label}: {one.skipped}" for one in known if one.skipped is not None]
    return HEAD.format(model=model, versions=used) + "\n".join(lines) + "\n"


def _ends(outcomes: list[Outcome]) -> str:
    counted = Counter(one.end for one in outcomes)
    return "; ".join(end if len(counted) == 1 else f"{number} × {end}" for end, number in counted.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("profile", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("build/torture"), help="work here")
    parser.add_argument("-p", "--page", type=Path, help="write the page here")
    parser.add_argument("--only", default="", help="cases with this text; others stay as they were")
    parser.add_argument("--page-only", action="store_true", help="try nothing, and write the page of what was tried last")
    arguments = parser.parse_args()
    folder = arguments.output.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    earlier = {} if arguments.page_only else earlier_pair(arguments.model, arguments.profile, folder / "earlier")
    chosen = [case for case in cases() if arguments.only in f"{case.kind}, {case.label}"]
    known = _known(folder)
    for case in chosen if not arguments.page_only else ():
        known[f"{case.kind}, {case.label}"] = _told(_tried(case, arguments, folder, earlier))
        record = [one.to_json() for one in known.values()]
        (folder / "torture.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    outcomes = [known[name] for case in cases() if (name := f"{case.kind}, {case.label}") in known]
    if arguments.page is not None:
        used = ", ".join(f"{name} {metadata.version(name)}" for name in ("tensorrt-rtx", "onnxruntime", "onnx"))
        arguments.page.write_text(page(outcomes, arguments.model.stem, used), encoding="utf-8")
    return 1 if any(one.problems for one in outcomes) else 0


def _known(folder: Path) -> dict[str, Outcome]:
    """What was tried last, by kind and label."""
    file = folder / "torture.json"
    found = map(Outcome.load, json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else ()
    return {f"{one.kind}, {one.label}": one for one in found}


def _tried(case: Case, arguments: Any, folder: Path, earlier: Mapping[str, Path]) -> Outcome:
    place = folder / "case"
    shutil.rmtree(place, ignore_errors=True)
    return tried(case, Arena.made(place, arguments.model, arguments.profile, earlier))


def _told(outcome: Outcome) -> Outcome:
    said = outcome.skipped or "; ".join(outcome.problems) or "ok"
    print(f"{outcome.kind}, {outcome.label}: {outcome.end}: {said}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
