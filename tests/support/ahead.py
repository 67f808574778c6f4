"""Long work of single tests, begun with the session and run beside the tests before them, as it mostly waits.

Each is a function that runs commands in processes of their own (its servers too: `penstock.testing.server.launch`), one
function at a time:

    def run_demo(work: Work) -> Done: ...

    @pytest.mark.ahead(work=run_demo)
    def test_the_demo(done: Done) -> None: ...
"""

import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

Done = subprocess.CompletedProcess[str]


class Work:
    """What such a function is given: an empty folder, and a way to run commands that end with the session."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process: subprocess.Popen[str] | None = None
        self._ended = False

    def run(
        self, command: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None
    ) -> Done:
        """Run a command in the folder until it ends."""
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            self._process = process
            if self._ended:
                process.kill()
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        return Done(command, process.returncode, out, err)

    def end(self) -> None:
        """Kill what runs: the session is over, and its test was not reached."""
        self._ended = True
        if self._process is not None and self._process.poll() is None:
            self._process.kill()


class Ahead:
    """The work of all tests of a session that ask for it."""

    def __init__(self, items: Sequence[pytest.Item], folder_for: Callable[[str], Path]) -> None:
        self._executor = ThreadPoolExecutor(1, "ahead")
        self._begun: dict[str, tuple[Callable[[], Any], Work, Future[Any]]] = {}
        for item in items:
            marker = item.get_closest_marker("ahead")
            if marker is not None:
                work = Work(folder_for("ahead"))

                def call(function: Callable[[Work], Any] = marker.kwargs["work"], work: Work = work) -> Any:
                    return function(work)

                self._begun[item.nodeid] = call, work, self._executor.submit(call)

    def result(self, item: pytest.Item) -> Any:
        """What the function returned; called now, where its turn has not come."""
        call, _, future = self._begun[item.nodeid]
        return call() if future.cancel() else future.result()

    def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
        for _, work, _ in self._begun.values():
            work.end()
        self._executor.shutdown()
