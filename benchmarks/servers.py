"""Processes that a benchmark measures: the echo floors, and Penstock itself with its data in a fresh folder."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .generator import Server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def echo(module: str = "echo") -> Iterator[Server]:
    """An echo floor, by its module: `echo` of HTTP, `websocket_echo`, or `stack_echo` of both."""
    port = free_port()
    command = [sys.executable, "-m", f"benchmarks.{module}", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield Server(port, process.pid)
        finally:
            process.terminate()


@contextmanager
def penstock(*flags: str, folder: Path | None = None) -> Iterator[Server]:
    """A Penstock server with its data in `folder` (default: the temporary one)."""
    with _launched(*flags, folder=folder) as (urls, process):
        yield Server(int(urls[0].rsplit(":", 1)[1]), process)


@contextmanager
def penstock_urls(*flags: str) -> Iterator[list[str]]:
    """A Penstock server; yields its URLs, HTTP's and that of Pulsar's protocol."""
    with _launched(*flags) as (urls, _):
        yield urls


@contextmanager
def penstock_binary(*flags: str, folder: Path | None = None) -> Iterator[tuple[str, int]]:
    """A Penstock server; yields the URL of Pulsar's protocol and its process id."""
    with _launched(*flags, folder=folder) as (urls, process):
        yield urls[1], process


def process_cpu_s(pid: int) -> float:
    """What a process has used of its processors (Linux; else 0)."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _launched(*flags: str, folder: Path | None = None) -> Iterator[tuple[list[str], int]]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=folder) as data:
        command = [sys.executable, "-m", "penstock", "serve", "--data", data]
        command += ["--http", "127.0.0.1:0", "--pulsar", "127.0.0.1:0", *flags]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline().decode()
                yield line.split()[2:], process.pid
            finally:
                process.terminate()
                process.wait()
