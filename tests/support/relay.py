"""A way between processes that a test cuts: bytes go both ways, until all connections end at once."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

PIECE: Final = 65536


class Relay:
    """Listens on loopback and forwards to `target`, a port. After `cut_within(n)` the n-th byte of one direction is the
    last that goes through, in the middle of whatever it belongs to."""

    def __init__(self, target: int) -> None:
        self.target = target  # 0: there is nobody behind it
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._left: int | None = None
        self._counts_answers = False
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Listen no more, and end all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections; what is on its way is lost."""
        with self._lock:
            self.cuts += 1
            self._left = None
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def cut_within(self, size: int, *, answers: bool = False) -> None:
        """Cut when so many more bytes came from the clients, or for the clients."""
        with self._lock:
            self._left, self._counts_answers = size, answers

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        address = ("127.0.0.1", self.target)
        with client, contextlib.suppress(OSError), socket.create_connection(address) as server:
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open |= {client, server}
            back = threading.Thread(target=self._pipe, args=(server, client, True), daemon=True)
            back.start()
            try:
                self._pipe(client, server)
                back.join()
            finally:
                with self._lock:
                    self._open -= {client, server}

    def _pipe(self, source: socket.socket, target: socket.socket, answers: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE):
                size, over = self._through(len(data), answers)
                target.sendall(data[:size])
                if over:
                    self.cut()
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _through(self, size: int, answers: bool) -> tuple[int, bool]:
        """How many of so many bytes go through, and whether they are the last."""
        with self._lock:
            if self._left is None or answers != self._counts_answers:
                return size, False
            if size < self._left:
                self._left -= size
                return size, False
            passed, self._left = self._left, None
            return passed, True


@contextlib.contextmanager
def relay(target: int) -> Iterator[Relay]:
    """A relay for the time of the block."""
    made = Relay(target)
    try:
        yield made
    finally:
        made.close()
