"""Processes that a benchmark measures: the echo floor, and Penstock itself with its data in a fresh folder."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def echo() -> Iterator[int]:
    """The echo floor; yields its port."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.echo", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield port
        finally:
            process.terminate()


@contextmanager
def penstock(*flags: str) -> Iterator[tuple[int, int]]:
    """A Penstock server; yields its HTTP port and its process id."""
    with _launched(*flags) as (urls, process):
        yield int(urls[0].rsplit(":", 1)[1]), process


@contextmanager
def penstock_urls(*flags: str) -> Iterator[list[str]]:
    """A Penstock server; yields its URLs, HTTP's and that of Pulsar's protocol."""
    with _launched(*flags) as (urls, _):
        yield urls


@contextmanager
def _launched(*flags: str) -> Iterator[tuple[list[str], int]]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        command = [str(Path(sys.executable).parent / "penstock"), "serve"]
        command += ["--data", folder, "--http", "127.0.0.1:0", "--pulsar", "127.0.0.1:0", *flags]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline().decode()
                yield line.split()[2:], process.pid
            finally:
                process.terminate()
                process.wait()
