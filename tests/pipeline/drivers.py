"""A process with Spark and declared pipelines in it, to be killed as a whole."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from tests.support.fault_proxy import FaultProxy

LIFE_S = 500  # on a busy machine

_FOLDER = Path(__file__).parent


class Driver:
    """The pipelines in a process with Spark, behind a proxy. It starts Spark, and the pipelines at `begin`."""

    def __init__(
        self, proxy: FaultProxy, folder: Path, *files: Path, master: str = "local[2]", how: str = "together"
    ) -> None:
        scratch = folder / "scratch"
        scratch.mkdir(exist_ok=True)
        environment = os.environ | {
            "PENSTOCK_TEST_PROXY": proxy.address,
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(scratch),  # what the killed leave behind
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={scratch} -XX:TieredStopAtLevel=1",
        }
        environment.pop("PYSPARK_GATEWAY_PORT", None)
        self._log = folder / "driver.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(_FOLDER / "driver.py"), proxy.url, master, how, *map(str, files)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def begin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"begin\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """Python, the JVM and its Python workers: the whole session, at once."""
        for pid in self._session():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()
        while left := self._session():  # those that were being born
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)  # they are not our children: nothing tells of their end

    def _session(self) -> list[int]:
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] not in "ZX" and int(fields[3]) == self.process.pid:
                found.append(int(stat.parent.name))
        return found

    def finish(self) -> None:
        """Until everything is processed."""
        try:
            code = self.process.wait(LIFE_S)
        finally:
            self.kill()
        assert code == 0, self.log

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")[-8000:]
