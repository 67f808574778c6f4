"""The processes of one service, for endpoints and engines."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager

from penstock.broker.fleet import Caller, ForwardedAnswer, ForwardedRequest, Header, Process, ProcessGoneError
from penstock.model.secret import Secret
from penstock.runtime.tasks import Tasks

from .peer import Peer
from .sessions import Hello, ProcessAuthentication, Proof, Sessions, Welcome, new_process_id


class ProcessFleet:
    """`broker.Fleet`. `id` is that of this process; the others are learned."""

    def __init__(self, secret: Secret, *, id: str = "", tls: ssl.SSLContext | None = None) -> None:
        """Raises BAD_PARAMETER for a secret that is too short."""
        self.id = id or new_process_id()
        self.proof = Proof(secret)
        self.tls = tls  # verifies the certificates of the others; None: the system's authorities do
        self._sessions = Sessions(self.proof, self.id)
        self._tasks = Tasks()
        self._peers: dict[str, Peer] = {}
        # Processes that write documents with another secret: when the last one arrived, in renewals of this process's own document.
        self.unverified: dict[str, int] = {}
        self.look_up: Callable[[], Awaitable[None]] | None = None  # learns of processes that started recently

    # -- the other processes

    def learn(self, process: Process) -> None:
        """A process, or other addresses of it."""
        found = self._peers.get(process.id)
        if process.id == self.id or (found is not None and found.process == process):
            return
        if found is not None:
            found.close()
        self._peers[process.id] = Peer(process, self.id, self.proof, self.tls, self._tasks)

    def forget(self, id: str) -> None:
        """A process has ended; does nothing for an unknown one."""
        peer = self._peers.pop(id, None)
        if peer is not None:
            peer.close()

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        return {one: (peer.sent, peer.failed) for one, peer in self._peers.items()}

    @property
    def problem(self) -> str | None:
        if self.unverified:
            return (
                f"{len(self.unverified)} other processes before the cluster use another fleet.secret, and are not reached: set the "
                "same one for all of them"
            )
        hidden = sum(not peer.process.url for peer in self)
        if hidden:
            return f"{hidden} processes of this service run on other machines, and have no address there: set their http.advertise"
        return None

    def find(self, id: str) -> Process | None:
        """A known process other than this one."""
        peer = self._peers.get(id)
        return None if peer is None else peer.process

    def look(self) -> None:
        """Called periodically: close connections that were idle for too long."""
        now = asyncio.get_running_loop().time()
        for peer in self._peers.values():
            peer.look(now)

    async def close(self) -> None:
        """End the connections to all processes."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        await self._tasks.close()

    # -- what processes have

    def new_id(self) -> str:
        return self.proof.new_id(self.id)

    def owner_of(self, id: str) -> str | None:
        return self.proof.owner_of(id)

    # -- requests

    @asynccontextmanager
    async def send(
        self, process: str, request: ForwardedRequest, head_s: float
    ) -> AsyncIterator[ForwardedAnswer]:
        peer = self._peers.get(process)
        if peer is None and self.look_up is not None:
            await self.look_up()
            peer = self._peers.get(process)
        if peer is None:
            raise ProcessGoneError(f"process {process} has ended")
        async with peer.send(request, head_s) as answer:
            yield ForwardedAnswer(answer.status, answer.headers, answer.part)

    async def credentials(self, process: str) -> ProcessAuthentication:
        """What proves to another process, over Pulsar's protocol, that this one is of its service. Raises ProcessGoneError,
        UNAVAILABLE."""
        peer = self._peers.get(process)
        if peer is None:
            raise ProcessGoneError(f"process {process} has ended")
        return ProcessAuthentication(await peer.session())

    def begin(self, hello: Hello, idle_s: float) -> Welcome:
        """Begin a session that another process asks for; raises MISDIRECTED."""
        return self._sessions.begin(hello, idle_s)

    def accept(self, proof: bytes, method: bytes, target: bytes, headers: Sequence[Header]) -> Caller:
        return self._sessions.accept(proof, method, target, headers)
