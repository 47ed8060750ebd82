"""Measure `trtnorm batch`: its overhead, a second run, workers and clients that are killed, and a thousand trivial jobs.

    python -m benchmarks.batch_runs FOLDER [overhead] [second] [worker] [client] [trivial]

Needs the extras batch and rtx. The numbers stand in docs/batch.md.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.models import batchnorm, parse, random, saved

TARGETS = ("sm_80", "sm_86", "sm_89", "sm_120")
NORM = "BatchNormalization(c, gamma, beta, mu, var)"
# Six models with a normalization each: four kinds, and two sizes.
GRAPHS = {
    "batchnorm": f"c = Conv(x, w) y = {NORM}",
    "batchnorm_alone": "r = Relu(x) y = BatchNormalization(r, gamma, beta, mu, var)",
    "instancenorm": "c = Conv<pads = [1, 1, 1, 1]>(x, w) n = InstanceNormalization(c, gamma, beta) y = Relu(n)",
    "residual": f"c = Conv<pads = [1, 1, 1, 1]>(x, w) n = {NORM} s = Add(n, x) y = Relu(s)",
    "two_convolutions": f"c = Conv(x, w) n = {NORM} r = Relu(n) y = Conv(r, w)",
    "pooled": f"c = Conv(x, w) n = {NORM} r = Relu(n) y = GlobalAveragePool(r)",
}


def plan_in(folder: Path) -> Path:
    """Six models for four targets: 24 jobs."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, nodes in GRAPHS.items():
        weights = {"w": random(16, 16, 3, 3), **batchnorm(16)}
        used = {key: value for key, value in weights.items() if f"{key}," in nodes or f"{key})" in nodes}
        model = parse(f"g (float[1, 16, 32, 32] x) => (float[1, 16, h, v] y) {{ {nodes} }}", used)
        saved(model, folder / f"{name}.onnx")
    plan = folder / "plan.yaml"
    targets = "\n".join(f"  {target}: {{backend: tensorrt-rtx, targets: [{target}]}}" for target in TARGETS)
    plan.write_text(f"models: {{all: '*.onnx'}}\ntargets:\n{targets}\n")
    return plan


def batch(plan: Path, output: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "trtnorm_cli", "batch", str(plan), "-o", str(output), "--json", "-q", *options]


class Times(NamedTuple):
    """Wall time, and processor time of a command with all that it started. A busy machine adds to the first alone, mostly."""

    wall: float
    processor: float

    def __str__(self) -> str:
        return f"{self.wall:.1f} s, {self.processor:.1f} s of processors"


def processor_s() -> float:
    """The processor's seconds of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(plan: Path, output: Path, *options: str) -> tuple[Times, dict[str, Any]]:
    """The times and the record of a batch."""
    start, before = time.perf_counter(), processor_s()
    done = subprocess.run(batch(plan, output, *options), capture_output=True, text=True, check=False)
    return Times(time.perf_counter() - start, processor_s() - before), json.loads(done.stdout)


def states(record: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for job in record["jobs"]:
        found[job["state"]] = found.get(job["state"], 0) + 1
    return found


def in_one_process(plan: Path, output: Path) -> Times:
    """As many builds by the Python API, one after the other."""
    output.mkdir(parents=True, exist_ok=True)
    for target in TARGETS:
        (output / f"{target}.yaml").write_text(f"builder: {{targets: [{target}]}}\n")
    code = (
        "import sys\nfrom pathlib import Path\nfrom trtnorm_cli import build\nmodels, output = map(Path, sys.argv[1:3])\n"
        "for model in sorted(models.glob('*.onnx')):\n    for target in sys.argv[3:]:\n"
        "        build(model, output / f'{model.stem}.{target}.engine', profile=output / f'{target}.yaml')\n"
    )
    start, before = time.perf_counter(), processor_s()
    subprocess.run([sys.executable, "-c", code, str(plan.parent), str(output), *TARGETS], check=True)
    return Times(time.perf_counter() - start, processor_s() - before)


def overhead(plan: Path, folder: Path) -> None:
    alone = in_one_process(plan, folder / "one process")
    print(f"24 builds in one process: {alone}", flush=True)
    for workers in (1, 2):
        took, record = run(plan, folder / f"out{workers}", "-j", str(workers), "--no-report")
        more = f"{(took.wall - alone.wall) / 24:+.2f} s a job, {(took.processor - alone.processor) / 24:+.2f} s of processors"
        print(f"-j {workers}: {took}, {states(record)}; over builds in one process {more}", flush=True)


def second(plan: Path, folder: Path) -> None:
    took, record = run(plan, folder / "out1", "--no-report")
    print(f"second run: {took}, {states(record)}", flush=True)


def engines(output: Path) -> int:
    return len(list(output.glob("*.engine")))


def children(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children")
    found = [int(child) for task in listed.parent.parent.iterdir() for child in (task / "children").read_text().split()]
    return [*found, *(inner for child in found for inner in children(child))]


def workers_of(pid: int) -> list[int]:
    """Processes of Dask's workers below a client."""
    found = []
    for child in children(pid):
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if any(b"spawn_main" in word for word in words):
            found.append(child)
    return found


@contextmanager
def begun(plan: Path, output: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A batch that has made a third of its engines."""
    with subprocess.Popen(
        batch(plan, output, *options), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        while engines(output) < 8 and process.poll() is None:
            time.sleep(0.05)
        yield process


def made_once(output: Path) -> str:
    """How many results the store has, and how often each was built: once, if nobody took over what another had done."""
    results = [json.loads(file.read_text()) for file in (output / ".store" / "results" / "build").glob("*.json")]
    jobs = [result["job"] for result in results]
    claims = list((output / ".store" / "claims").glob("*.json"))
    return f"{len(results)} results of {len(set(jobs))} jobs, {engines(output)} engines, {len(claims)} claims left"


def worker(plan: Path, folder: Path) -> None:
    output = folder / "out worker"
    with begun(plan, output, "-j", "2", "--no-report") as process:
        victim = workers_of(process.pid)[0]
        os.kill(victim, signal.SIGKILL)
        text, _ = process.communicate()
    record = json.loads(text)
    again = [job["name"] for job in record["jobs"] if job["attempt"] > 1]
    print(f"a worker killed after 8 engines: {states(record)}; begun again: {len(again)}; {made_once(output)}", flush=True)


def client(plan: Path, folder: Path) -> None:
    output = folder / "out client"
    with begun(plan, output, "-j", "2", "--no-report") as process:
        process.kill()
        process.communicate()
    time.sleep(2)
    before = len(list((output / ".store" / "results" / "build").glob("*.json")))
    took, record = run(plan, output, "-j", "2", "--no-report", "--resume")
    print(f"the client killed with {before} done, resumed: {states(record)} in {took}; {made_once(output)}", flush=True)


def trivial(plan: Path, folder: Path) -> None:
    """A thousand jobs that do nothing, on the machinery of a batch; the memory of the process that schedules."""
    from trtnorm_cli.batch import session
    from trtnorm_cli.batch.session import BatchOptions, run_batch

    many = folder / "many"
    many.mkdir(exist_ok=True)
    seeds = "\n".join(
        f"  p{number}: {{settings: {{builder: {{max_aux_streams: {number % 64}}}, max_memory: {number + 1}GiB}}}}"
        for number in range(1000)
    )
    (many / "plan.yaml").write_text(f"models: {{net: {plan.parent / 'pooled.onnx'}}}\nprofiles:\n{seeds}\n")

    def rss() -> int:
        status = Path("/proc/self/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    class Watch:
        def __init__(self) -> None:
            self.at: list[int] = []
            self.done = 0
            self.start = 0.0

        def begins(self, batch: Any) -> None:
            self.start = time.perf_counter()
            self.at.append(rss())

        def changed(self, job: Any) -> None:
            if job.state in ("built", "failed"):
                self.done += 1
                if self.done % 250 == 0:
                    self.at.append(rss())
                    print(f"{self.done} done, {rss() // 1024} MiB, {time.perf_counter() - self.start:.0f} s", flush=True)

    local = session.local_client

    @contextmanager
    def with_trivial_work(*given: Any) -> Iterator[Any]:
        with local(*given) as client:
            client.run(make_trivial)
            yield client

    session.local_client = with_trivial_work  # type: ignore[assignment]
    watch = Watch()
    start = time.perf_counter()
    record = run_batch(many / "plan.yaml", BatchOptions(jobs=2, output=many / "out", with_report=False), watch)
    seconds = time.perf_counter() - start
    sizes = ", ".join(f"{size // 1024}" for size in watch.at)
    print(f"1000 trivial jobs: {record.counts} in {seconds:.0f} s; memory of client and scheduler in MiB: {sizes}", flush=True)


def make_trivial() -> None:
    """In a worker: let builds do next to nothing."""
    from trtnorm_cli.batch import steps

    def built(ticket: Any, store: Any, folder: Path) -> Mapping[str, Any]:
        path = folder / f"{ticket.job.name}.engine"
        path.write_text(ticket.addresses.build)
        return {"files": [store.put_file(path, path.name).to_json()], "stages": {}, "warnings": []}

    steps.built = built  # type: ignore[assignment]
    steps.rewritten = lambda ticket, store, folder: {"proofs": {}}  # type: ignore[assignment]


MEASURED = {"overhead": overhead, "second": second, "worker": worker, "client": client, "trivial": trivial}


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    plan = plan_in(folder / "models")
    for name in sys.argv[2:] or MEASURED:
        MEASURED[name](plan, folder)


if __name__ == "__main__":
    main()
