"""The network that a build process writes when it has parsed the model, and before it builds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from trtnorm_cli.progress import Event
from trtnorm_cli.side_work import Awaited, Later
from trtnorm_cli.tensorrt.launch import EventHandler
from trtnorm_cli.tensorrt.network.launch import NetworkTranslation, network_of_build
from trtnorm_cli.tensorrt.request import NETWORK_FILE, NETWORK_RESULT_FILE, BuildRequest, BuildResult


class ParsedNetwork:
    """The network of one build in ``folder``, for whoever waits for it while the engine is built."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_there = threading.Event()
        (folder / NETWORK_RESULT_FILE).unlink(missing_ok=True)

    def asked(self, request: BuildRequest) -> BuildRequest:
        """``request``, with the wish for the network."""
        return replace(request, network=NETWORK_FILE)

    def built(self, run: Callable[[EventHandler], BuildResult]) -> BuildResult:
        """Run the build, and hear when the network is written."""

        def listen(event: Event) -> None:
            if event["event"] == "network":
                self._is_there.set()

        try:
            return run(listen)
        finally:
            self._is_there.set()

    def translation(self, model: Path, building: Awaited[BuildResult]) -> NetworkTranslation | None:
        """The network of ``model``, once it is written; None where the build ended before.

        ``building`` is the build, in a thread of its own or begun here. Raises as ``network_of_build`` does.
        """
        if isinstance(building, Later):
            building.error()
        self._is_there.wait()
        if not (self._folder / NETWORK_RESULT_FILE).is_file():
            return None
        return network_of_build(self._folder, model, self._folder / NETWORK_FILE)
