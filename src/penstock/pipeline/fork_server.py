"""Forks Spark's Python processes from one that has imported what they need: `python -m penstock.pipeline.fork_server`.

Spark starts a Python interpreter for each kind of thing that it asks of a data source (look for it, make it, plan a
read, write, commit), and each would import PySpark, Arrow and pandas anew: most of a second of CPU, one after the
other, before the first row is read. Here they are imported once, while the JVM starts.

What Spark calls its Python is a script that runs `fork_client.py`. That hands its arguments, environment and open files
to this process, which forks; the client then waits for the end of the child, and passes on what Java asks of it. Where
this process is not there, the client becomes the interpreter that was asked for. A client that is killed takes its
child with it.

The socket comes from the parent as file descriptor, so that a client finds it before this process is ready. The end of
stdin is the end of the parent: no child is made any more.
"""

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import tempfile
from contextlib import suppress
from typing import Final

import msgspec

WANTED_S: Final = 10.0  # for a client, which is on this machine, to say what it wants

# Not what Spark runs as `__main__`, which may look at its arguments when it is imported. What is not installed, or not there in this Spark, is left out.
_IMPORTED: Final = (
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.pandas.functions",
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark_penstock",
    "pyspark_penstock_lake",
    "penstock.pipeline.source.stream",
    "penstock.pipeline.sink.writer",
    "penstock.pipeline.lake.sink",
)


class Wanted(msgspec.Struct):
    """What a client asks for: `python -m MODULE ARGUMENTS`."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    path: list[str]  # where to look for modules, before where this process looks


class Child(Exception):
    """Raised in a child, to leave the loop of its parent."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(wanted.module)
        self.wanted = wanted


class ForkServer:
    """Forks a child for each client, and tells the client its process id and, at its end, its exit code."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._clients: dict[int, socket.socket] = {}  # by the child's process id
        self._selector = selectors.DefaultSelector()
        self._ended, ended = socket.socketpair()
        self._ended.setblocking(False)
        ended.setblocking(False)
        self._ending = ended
        signal.signal(signal.SIGCHLD, lambda *_: None)  # only that it wakes us
        signal.set_wakeup_fd(ended.fileno(), warn_on_full_buffer=False)

    def run(self) -> None:
        """Until stdin ends. Raises Child in each child."""
        with self._selector as selector:
            for file in (self._listening, self._ended, 0):
                selector.register(file, selectors.EVENT_READ)
            while True:
                ready = {key.fd: key.data for key, _ in selector.select()}
                for child in ready.values():
                    if child is not None:
                        self._abandon(child)
                if self._ended.fileno() in ready:
                    self._reap()
                if self._listening.fileno() in ready:
                    self._accept()
                if 0 in ready and not os.read(0, 1):
                    return

    def _accept(self) -> None:
        client, _ = self._listening.accept()
        try:
            wanted, files = _asked(client)
        except (OSError, ValueError, struct.error):  # a client that is gone
            client.close()
            return
        try:
            child = os.fork()
        except (
            OSError
        ):  # no room for a process: its own interpreter may find some later, and other clients come
            for file in (*files, client.detach()):
                os.close(file)
            return
        if child == 0:
            self._become_child(client, files)
            raise Child(wanted)
        for file in files:
            os.close(file)
        self._clients[child] = client
        self._selector.register(client, selectors.EVENT_READ, child)
        _tell(client, child)

    def _abandon(self, child: int) -> None:
        """End the child of a client that is gone: clients say nothing, and wait. Not reaped yet, it has its process id still."""
        os.kill(child, signal.SIGKILL)
        self._forget(child).close()

    def _forget(self, child: int) -> socket.socket:
        client = self._clients.pop(child)
        self._selector.unregister(client)
        return client

    def _become_child(self, client: socket.socket, files: list[int]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in (client, self._listening, self._ended, self._ending, *self._clients.values()):
            other.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            while self._ended.recv(256):
                pass
        with suppress(ChildProcessError):
            while True:
                child, status = os.waitpid(-1, os.WNOHANG)
                if not child:
                    return
                if child in self._clients:
                    with self._forget(child) as client:
                        _tell(client, os.waitstatus_to_exitcode(status))


def _asked(client: socket.socket) -> tuple[Wanted, list[int]]:
    """What a client wants, and its stdin, stdout and stderr."""
    if not _same_user(client):
        raise OSError("another user's process")
    client.settimeout(WANTED_S)
    head, files, _, _ = socket.recv_fds(client, 4, 3)
    try:
        (size,) = struct.unpack("!I", head)
        body = bytearray()
        while len(body) < size:
            if not (part := client.recv(size - len(body))):
                raise OSError("the client is gone")
            body += part
        return msgspec.convert(json.loads(body), Wanted), files  # msgspec's own refuses what is no UTF-8
    except BaseException:
        for file in files:
            os.close(file)
        raise


def _same_user(client: socket.socket) -> bool:
    """A socket without a file has no owner that the system would look at."""
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", credentials)[1] == os.getuid())


def _tell(client: socket.socket, number: int) -> None:
    with suppress(OSError):
        client.sendall(struct.pack("!i", number))


def run_child(wanted: Wanted) -> None:
    """Be the interpreter that was asked for. Ends as the module ends."""
    os.chdir(wanted.folder)
    os.environ.clear()
    os.environ.update(wanted.environment)
    sys.path[:0] = [path for path in wanted.path if path not in sys.path]
    importlib.invalidate_caches()
    tempfile.tempdir = None  # where TMPDIR says now
    sys.argv = [wanted.module, *wanted.arguments]
    if "numpy.random" in sys.modules:  # Python's own `random` sees to that itself
        sys.modules["numpy.random"].seed()
    runpy.run_module(wanted.module, run_name="__main__", alter_sys=True)


def main() -> None:
    """`fork_server FILE`, the descriptor of a listening socket."""
    for name in _IMPORTED:
        with suppress(Exception):  # whoever needs it says so in its own process
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # so that no child's collector touches, and so copies, what all share
    listening = socket.socket(fileno=int(sys.argv[1]))
    wanted = None
    try:
        ForkServer(listening).run()
    except Child as child:
        wanted = child.wanted
    if wanted is not None:
        run_child(wanted)


if __name__ == "__main__":
    main()
