"""Export processes that need not import PyTorch: forks of one that has.

``python warm_worker.py NAME`` imports what an export needs and forks for each request on the abstract socket NAME. ``python
warm_worker.py NAME FOLDER`` asks it for an export in FOLDER and ends as that does; what it prints comes out here. The forked
process does what ``trtnorm_cli.export.child.worker`` does as a program, with the variables and the folder of who asked. The
samples' tests start it as a program.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path

_LONGEST = 1 << 20


def serve(name: str) -> None:
    """Answer for as long as it is let."""
    from trtnorm_cli.child_process import die_with_parent

    die_with_parent()
    warm()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("\0" + name)
    listening.listen()
    while True:
        client, _ = listening.accept()
        with client:
            message, descriptors, _, _ = socket.recv_fds(client, _LONGEST, 3)
            if not message:  # it only asked whether anybody is there
                continue
            child = os.fork()
            if child == 0:
                listening.close()
                work(json.loads(message), descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            _, status = os.waitpid(child, 0)
            client.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def warm() -> None:
    """Import what an export imports, by making one; on one thread, because a fork has no other."""
    import torch
    import torch.onnx

    import trtnorm_cli.export.child.exporting  # noqa: F401

    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(1)
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 1), torch.nn.BatchNorm2d(1)).eval()
    sizes = ({0: torch.export.Dim("n", min=1, max=3)},)
    torch.onnx.export(network, (torch.ones(2, 1, 2, 2),), None, dynamo=True, dynamic_shapes=sizes, verbose=False)
    torch.set_num_threads(threads)
    torch.set_rng_state(state)


def work(request: dict, descriptors: list[int]) -> None:
    """Become the export process."""
    from trtnorm_cli.child_process import PARENT_VARIABLE
    from trtnorm_cli.export.child import worker

    os.setsid()
    for target, descriptor in zip((1, 2), descriptors[:2], strict=True):
        os.dup2(descriptor, target)
    # The pipe on which it says what it is at has another number here.
    arguments = [request["arguments"][0], *map(str, descriptors[2:])]
    os.environ.clear()
    os.environ.update({**request["environment"], PARENT_VARIABLE: str(os.getppid())})
    os.chdir(request["folder"])
    code = 1
    try:
        code = worker.main(arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def ask(name: str, arguments: list[str]) -> None:
    """End as the export process ends."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect("\0" + name)
        request = {"arguments": arguments, "folder": str(Path.cwd()), "environment": dict(os.environ)}
        socket.send_fds(server, [json.dumps(request).encode()], [1, 2, *map(int, arguments[1:])])
        code = int(server.recv(64) or b"1")
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    serve(sys.argv[1]) if len(sys.argv) == 2 else ask(sys.argv[1], sys.argv[2:])
