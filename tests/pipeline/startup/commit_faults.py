"""Makes Spark's Python processes ask a test's proxy where they are about to commit, or have just done so.

A driver that a test kills, and the workers in which Spark runs writers, install this at their start (sitecustomize.py).
A place is passed when the proxy answers "go"; else the process ends there, as one does that is killed.
"""

import importlib.abc
import importlib.machinery
import os
import signal
import socket
import sys
from typing import Any

WAIT_S = 300


def ask_proxy(place: str) -> None:
    """Wait until the proxy lets this process go on."""
    host, _, port = os.environ["PENSTOCK_TEST_PROXY"].rpartition(":")
    answer = b""
    try:
        with socket.create_connection((host, int(port)), WAIT_S) as proxy:
            proxy.sendall(f"HOOK {place} HTTP/1.1\r\n\r\n".encode())
            answer = proxy.recv(2)
    except OSError:
        pass  # the proxy has closed: the driver ends too
    if answer != b"go":
        os.kill(os.getpid(), signal.SIGKILL)


def table_commits(module: Any) -> None:
    """Commits with the rows of a batch: /delta/…"""
    write = module.DeltaTable.create_write_transaction

    def asked(self: Any, *arguments: Any, **options: Any) -> None:
        table = self.table_uri.rstrip("/").rpartition("/")[2]
        ask_proxy(f"/delta/before/{table}")
        write(self, *arguments, **options)
        ask_proxy(f"/delta/after/{table}")

    module.DeltaTable.create_write_transaction = asked


def batch_ends(module: Any) -> None:
    """A batch that is in all its sinks, before Spark hears of it: /batch/over/…"""
    write = module.BatchWriter.__call__

    def asked(self: Any, batch: Any, number: int) -> None:
        write(self, batch, number)
        ask_proxy(f"/batch/over/{self._spec.name}/{number}")

    module.BatchWriter.__call__ = asked


def next_batches(module: Any) -> None:
    """A batch that Spark has committed, before the next one is planned: /follow/…"""
    follow = module.Follower.follow

    def asked(self: Any, client: Any, marks: Any) -> None:
        ask_proxy(f"/follow/{self._subscription}")
        follow(self, client, marks)

    module.Follower.follow = asked


PATCHES = {
    "deltalake.table": table_commits,
    "penstock.pipeline.run.sinks": batch_ends,
    "penstock.pipeline.source.follow": next_batches,
}


class Finder(importlib.abc.MetaPathFinder):
    """Finds what is to be patched as everybody does, and patches it when it is loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        patch = PATCHES.get(name)
        found = importlib.machinery.PathFinder.find_spec(name, path) if patch else None
        if patch is None or found is None or found.loader is None:
            return None
        load = found.loader.exec_module

        def loaded(module: Any) -> None:
            load(module)
            patch(module)

        found.loader.exec_module = loaded  # type: ignore[method-assign]
        return found


def install() -> None:
    sys.meta_path.insert(0, Finder())
