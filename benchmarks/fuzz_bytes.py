"""Feed bytes that coverage guides to the two readers of strangers' files: build profiles in YAML, and ONNX.

    build/fuzz/venv/bin/python -m benchmarks.fuzz_bytes yaml -o build/fuzz --seconds 1800
    build/fuzz/venv/bin/python -m benchmarks.fuzz_bytes onnx -o build/fuzz --seconds 1800

It needs atheris, in an environment of its own. A profile is read or refused with one clear error. A model is read without its
weights as protobuf reads all of it, or not at all, and then loaded or refused with one clear error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["trtnorm_cli", "yaml"], enable_loader_override=False):
    from trtnorm_cli.onnx_model import light_file, load
    from trtnorm_cli.onnx_model.stored import read_part
    from trtnorm_cli.profile.load import parse_profile

import onnx
from google.protobuf.message import DecodeError

from benchmarks.fuzz_models import mutated
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.onnx_model.walk import all_tensors

_MOST_SECONDS = 5.0


class Disagreement(Exception):
    """The light reader and protobuf read two models."""


def read_profile(data: bytes, folder: Path) -> None:
    """A profile from text, or one clear error."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    try:
        parse_profile(text, "p.yaml")
    except TrtnormError as error:
        if not error.summary:
            raise Disagreement("an error without a word") from error


def read_model(data: bytes, folder: Path) -> None:
    """A model by both readers, and loaded."""
    path = folder / "model.onnx"
    path.write_bytes(data)
    light = light_file.read_light(path)
    try:
        whole = onnx.ModelProto.FromString(data)
    except DecodeError:
        whole = None
    if light is not None:
        if whole is None:
            raise Disagreement("protobuf refuses what was read")
        if not any(tensor.external_data for tensor in all_tensors(whole)):
            pieces = light_file.whole_message(light, folder)
            content = b"".join(p if isinstance(p, bytes) else read_part(p, "").tobytes() for p in pieces)
            if _canonical(onnx.ModelProto.FromString(content)) != _canonical(whole):
                raise Disagreement("protobuf reads another model")
    try:
        load.load_model(path)
    except TrtnormError as error:
        if not error.summary:
            raise Disagreement("an error without a word") from error


def _canonical(proto: onnx.ModelProto) -> bytes:
    for tensor in all_tensors(proto):
        if tensor.data_location == onnx.TensorProto.DEFAULT:
            tensor.ClearField("data_location")
    return proto.SerializeToString(deterministic=True)


def seeds(kind: str) -> list[bytes]:
    """What mutation begins with: the repository's own profiles, or small models."""
    if kind == "yaml":
        documented = (Path("docs") / "profiles.md").read_text(encoding="utf-8").split("```yaml\n")[1:]
        own = [path.read_bytes() for path in sorted(Path("configs").glob("*.yaml"))]
        return own + [text.split("```")[0].encode() for text in documented]
    return [mutated(seed).SerializeToString() for seed in range(40)]


def watched(read: Callable[[bytes, Path], None], out: Path, kind: str, folder: Path) -> Callable[[bytes], None]:
    """``read`` with finds written down, one for each place in the program, and a record of how much was tried."""
    known: set[str] = set()
    record = {"executions": 0, "seconds": 0.0, "finds": []}
    begun = time.monotonic()

    def one(data: bytes) -> None:
        started, problem = time.process_time(), ""
        try:
            read(data, folder)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            problem = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}: {str(error)[:200]}"
            key = problem.split(":")[0] + str(last.lineno)
        used = time.process_time() - started
        if not problem and used > _MOST_SECONDS:
            problem, key = f"{used:.0f} s for {len(data)} bytes", "slow"
        if problem and key not in known:
            known.add(key)
            (out / f"{kind}-{len(known)}.bin").write_bytes(data)
            record["finds"] = [*record["finds"], problem]  # type: ignore[misc]
        record["executions"] = int(str(record["executions"])) + 1
        if problem or record["executions"] % 200 == 0:
            record["seconds"] = round(time.monotonic() - begun)
            (out / f"{kind}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["yaml", "onnx"])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=1800)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    # So that tensors of a few bytes are left in the file, as large ones are.
    light_file.LARGE_BYTES = 16
    folder = Path(tempfile.mkdtemp(prefix="trtnorm-fuzz-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, content in enumerate(seeds(arguments.kind)):
        (corpus / str(number)).write_bytes(content)
    read = {"yaml": read_profile, "onnx": read_model}[arguments.kind]
    options = [f"-max_total_time={arguments.seconds}", "-max_len=4096", "-timeout=120", "-rss_limit_mb=4096", "-verbosity=0"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], watched(read, arguments.output, arguments.kind, folder))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
