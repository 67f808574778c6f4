"""A proxy between a server and its clients, in which a test injects faults at chosen requests.

It forwards bytes. A rule names a request by its first line; when it comes, before the server sees it or when its
answer has begun, something happens (a kill, a restart, an admin's call) while that client waits. Then the connection
is cut, unless the rule lets it go on. So a process dies exactly there, and no test has to sleep for it.

Processes can also ask the proxy whether to go on without a request to the server: see pipeline/startup/commit_faults.py.
"""

import re
import select
import socket
import threading
from collections.abc import Callable
from typing import Self

ANSWER_S = 300  # a condition that a test waits for

_HOOK = b"HOOK "
_HEAD = re.compile(rb"\A([A-Z]+) (\S+) HTTP/1\.1\r\n")


class Rule:
    """What happens at a request. `nth`: at which of those that match; `cut`: whether its connection ends then,
    after the head of the answer and `body_bytes` more where there are any."""

    def __init__(
        self,
        pattern: str,
        when: str,
        action: Callable[[], None] | None = None,
        nth: int = 1,
        *,
        cut: bool = True,
        body_bytes: int = 0,
    ) -> None:
        self.pattern = re.compile(pattern)
        self.when = when
        self.action = action
        self.left = nth
        self.cut = cut
        self.body_bytes = body_bytes
        self.fired = threading.Event()
        self.place = ""
        self.error: BaseException | None = None

    def wait(self, timeout_s: float = ANSWER_S) -> str:
        """Until it has happened; returns the request that it happened at."""
        assert self.fired.wait(timeout_s), f"no request matched {self.pattern.pattern}"
        if self.error is not None:
            raise self.error
        return self.place


class FaultProxy:
    """Listens on loopback and forwards to `port`. A context manager."""

    def __init__(self, port: int) -> None:
        self._upstream = port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.url = f"http://{self.address}"
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self.requests: list[str] = []
        self._threads = [threading.Thread(target=self._accept, name="fault proxy", daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._closed.set()
        for thread in list(self._threads):
            thread.join(ANSWER_S)
        self._listener.close()

    def at(
        self,
        pattern: str,
        action: Callable[[], None] | None = None,
        *,
        when: str = "before",
        nth: int = 1,
        cut: bool = True,
    ) -> Rule:
        """Add a rule, for once. `pattern` is searched for in `METHOD /path`."""
        assert when in ("before", "after")
        return self._add(Rule(pattern, when, action, nth, cut=cut))

    def cut_body(self, pattern: str, size: int) -> Rule:
        """Forward the head of one answer and `size` bytes of its body (chunks' heads count), then cut."""
        return self._add(Rule(pattern, "body", body_bytes=size))

    def _add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule

    def _accept(self) -> None:
        while self._ready(self._listener):
            client, _ = self._listener.accept()
            thread = threading.Thread(target=self._serve, args=(client,), name="fault proxy", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _ready(self, *sides: socket.socket) -> list[socket.socket]:
        """The sides that can be read; none when the proxy is closed."""
        while not self._closed.is_set():
            if found := select.select(sides, [], [], 0.2)[0]:
                return found
        return []

    def _serve(self, client: socket.socket) -> None:
        try:
            with client:
                if not self._ready(client):
                    return
                if client.recv(len(_HOOK), socket.MSG_PEEK) == _HOOK:
                    rule = self._enter(client.recv(65536))
                    if rule is None or not self._fire(rule):
                        client.sendall(b"go")
                    return
                with socket.create_connection(("127.0.0.1", self._upstream), 5) as server:
                    self._relay(client, server)
        except OSError:
            pass  # one side is gone: so is the other

    def _relay(self, client: socket.socket, server: socket.socket) -> None:
        waiting: Rule | None = None  # for the answer
        answer = bytearray()  # so far, where its body is to be cut
        while sides := self._ready(client, server):
            for side in sides:
                data = side.recv(65536)
                if not data:
                    return
                if side is server:
                    rule = waiting
                    if rule is not None and rule.when == "body":
                        data, over = self._cut(answer, data, rule)
                        client.sendall(data)
                        if over and self._fire(rule):
                            return
                        continue
                    waiting = None
                    if rule is not None and self._fire(rule):
                        return
                    client.sendall(data)
                    continue
                rule = self._enter(data)
                if rule is not None and rule.when != "before":
                    waiting, answer = rule, bytearray()
                elif rule is not None and self._fire(rule):
                    return
                server.sendall(data)

    @staticmethod
    def _cut(answer: bytearray, data: bytes, rule: Rule) -> tuple[bytes, bool]:
        """What is still forwarded of `data`, and whether that is all."""
        forwarded = len(answer)
        answer += data
        head = answer.find(b"\r\n\r\n")
        if head < 0 or len(answer) < head + 4 + rule.body_bytes:
            return data, False
        return bytes(answer[forwarded : head + 4 + rule.body_bytes]), True

    def _enter(self, data: bytes) -> Rule | None:
        """The rule for the request that begins in `data`, if one does."""
        head = _HEAD.match(data)
        if head is None:
            return None
        said = f"{head[1].decode()} {head[2].decode()}"
        with self._lock:
            self.requests.append(said)
            for rule in self._rules:
                if rule.pattern.search(said):
                    rule.left -= 1
                    if rule.left == 0:
                        rule.place = said
                        self._rules.remove(rule)
                        return rule
        return None

    def _fire(self, rule: Rule) -> bool:
        """Let it happen; whether the connection ends then."""
        try:
            if rule.action is not None:
                rule.action()
        except BaseException as error:  # `wait` raises it
            rule.error = error
        rule.fired.set()
        return rule.cut
