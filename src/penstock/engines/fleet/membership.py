"""How the processes before one cluster know one another: each writes a document about itself to the cluster.

A document has the addresses of its process and a code with the service's secret. A program that can write to the cluster but does not
know the secret cannot have requests sent to an address. A process renews its document every RENEW_S seconds. It counts as ended if its
last document, which is signed too, says so, or if no renewal arrived while more than LAPSE renewals of this process's own document did. So
no clocks are compared, and no process counts as ended because the cluster is away.

Any program that can write to the cluster can remove a document. A process whose own document was removed or replaced writes it again,
and the others count it as ended only if it does not.
"""

import asyncio
import hmac
import ipaddress
import logging
import socket
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from penstock import __version__
from penstock.broker.fleet import Process, ProcessDocuments
from penstock.model.errors import PenstockError
from penstock.model.formats import DOCUMENTS
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .fleet import ProcessFleet

log = logging.getLogger(__name__)

KIND: Final = "fleet"
FORMAT: Final = DOCUMENTS[KIND]
RENEW_S: Final = 10.0
LAPSE: Final = 4
REMOVED_LAPSE: Final = 2  # of a process whose document was removed without proof
AGAIN_S: Final = 1.0  # between two times that a removed document is written again
LOOK_UP_S: Final = 1.0  # between two look-ups of unknown processes
UNVERIFIED_MAX: Final = 1000  # ids that are remembered, so that each is logged once


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """`machine` identifies the machine whose loopback addresses lead to this process."""

    process: Process
    machine: str


class _Signed(msgspec.Struct, frozen=True, kw_only=True):
    """A document as text, and its code."""

    document: str
    code: str


class Membership:
    """This process among those of its service."""

    def __init__(
        self,
        fleet: ProcessFleet,
        documents: ProcessDocuments,
        tasks: Tasks,
        clock: Clock,
        *,
        machine: str = "",
    ) -> None:
        self._fleet = fleet
        self._documents = documents
        self._machine = machine or this_machine()
        self._own = b""
        self._clock = clock
        self._tasks = tasks
        self._renewed = 0  # renewals of this process's own document that arrived
        self._renewing = False  # one is written and has not arrived
        self._seen: dict[str, int] = {}  # by process: `_renewed` when its document last arrived
        self._removed: set[str] = set()  # of those: without proof that they have ended
        self._started = False
        self._failing = False
        self._logged: set[str] = set()  # of processes that were not believed
        self._task: asyncio.Task[None] | None = None
        self._missing = False  # the own document was removed or replaced
        self._restoring: asyncio.Task[None] | None = None
        self._restored = -AGAIN_S
        self._looking = asyncio.Lock()
        self._looked = -LOOK_UP_S
        fleet.look_up = self.look_up

    async def start(
        self, url: str, pulsar_url: str = "", pulsar_tls_url: str = "", peer_url: str = ""
    ) -> None:
        """Write the document of this process, with the addresses at which others reach it, and learn those of the others. A failure
        is logged and retried."""
        own = Process(
            id=self._fleet.id,
            url=url,
            pulsar_url=pulsar_url,
            pulsar_tls_url=pulsar_tls_url,
            peer_url=peer_url,
            started_ms=self._clock.now_ms(),
            version=__version__,
        )
        self._own = encode(self._fleet, own, self._machine)
        await self.renew()
        self._task = self._tasks.spawn(self._renew(), "renew the document of this process")

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            await self.renew()

    async def renew(self) -> None:
        """Renew the document of this process, and forget processes that did not renew theirs."""
        self._fleet.look()
        try:
            if not self._started:
                await self._documents.start(self._learned)
                self._started = True
            self._renewing = True
            await self._documents.write(self._fleet.id, self._own)
            self._failing = False
        except PenstockError as error:
            if not self._failing:
                self._failing = True
                log.warning(
                    "processes do not know one another",
                    extra={"reason": error.message, "follows": "no request is passed on to another process"},
                )
        for ended in [one for one, seen in self._seen.items() if self._renewed - seen > self._lapse(one)]:
            log.info("a process of this service has ended", extra={"process_id": ended})
            self._forget(ended)
            await self._remove(ended)
        for silent in [one for one, seen in self._fleet.unverified.items() if self._renewed - seen > LAPSE]:
            del self._fleet.unverified[silent]
            await self._remove(silent)  # one that has not ended writes it again

    def _lapse(self, id: str) -> int:
        return REMOVED_LAPSE if id in self._removed else LAPSE

    async def _remove(self, id: str, last: bytes = b"") -> None:
        try:
            await self._documents.remove(id, last)
        except PenstockError as error:
            log.debug("the document of process %s stays: %s", id, error.message)

    def _learned(self, id: str, document: bytes | None) -> None:
        if id == self._fleet.id:
            self._learned_own(document)
        elif document is None:
            self._fleet.unverified.pop(id, None)
            if id in self._seen:
                self._removed.add(id)
        elif is_end(self._fleet, id, document):
            self._forget(id)
        elif (process := decode(self._fleet, id, document, self._machine)) is None:
            self._distrust(id)
        else:
            self._seen[id] = self._renewed
            self._removed.discard(id)
            self._fleet.unverified.pop(id, None)
            self._fleet.learn(process)

    def _learned_own(self, document: bytes | None) -> None:
        if document is None or decode(self._fleet, self._fleet.id, document, self._machine) is None:
            self._missing = True
            if self._task is not None and (self._restoring is None or self._restoring.done()):
                self._restoring = self._tasks.spawn(
                    self._restore(), "write the document of this process again"
                )
        elif self._renewing:
            self._renewing = False  # one renewal counts once, however often others repeat the document
            self._renewed += 1

    async def _restore(self) -> None:
        loop = asyncio.get_running_loop()
        while self._missing:
            await asyncio.sleep(max(0.0, self._restored + AGAIN_S - loop.time()))
            self._missing, self._restored = False, loop.time()
            log.info("the document of this process was removed or replaced by another program")
            try:
                await self._documents.write(self._fleet.id, self._own)
            except PenstockError as error:
                log.debug("the document of this process was not written: %s", error.message)

    def _forget(self, id: str) -> None:
        self._seen.pop(id, None)
        self._removed.discard(id)
        self._fleet.forget(id)

    def _distrust(self, id: str) -> None:
        unverified = self._fleet.unverified
        if id in unverified or len(unverified) < UNVERIFIED_MAX:
            unverified[id] = self._renewed
        if id not in self._logged and len(self._logged) < UNVERIFIED_MAX:
            self._logged.add(id)
            log.warning(
                "the document of a process was rejected",
                extra={
                    "process_id": id[:32],
                    "reason": "it was not written with the fleet.secret of this process",
                    "remedy": "set the same fleet.secret for all processes before the cluster",
                },
            )

    async def look_up(self) -> None:
        """Learn of processes that started a moment ago; asks at most once in LOOK_UP_S."""
        async with self._looking:
            now = asyncio.get_running_loop().time()
            if now - self._looked < LOOK_UP_S or not self._started:
                return
            try:
                await self._documents.catch_up()
            except PenstockError as error:
                log.info("other processes cannot be looked up: %s", error.message)
            self._looked = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Remove the document of this process."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
            if self._restoring is not None:
                self._restoring.cancel()
            await self._remove(self._fleet.id, encode_end(self._fleet, self._fleet.id))


def encode(fleet: ProcessFleet, process: Process, machine: str) -> bytes:
    """The document of a process, signed."""
    text = msgspec.json.encode(_Document(process=process, machine=machine)).decode()
    return msgspec.json.encode(_Signed(document=text, code=_code(fleet, process.id, text)))


def decode(fleet: ProcessFleet, id: str, document: bytes, machine: str) -> Process | None:
    """The process of a document; None if it was not signed with the service's secret. A loopback address of another machine is
    left out."""
    try:
        signed = msgspec.json.decode(document, type=_Signed)
        if not hmac.compare_digest(_code(fleet, id, signed.document).encode(), signed.code.encode()):
            return None
        found = msgspec.json.decode(signed.document, type=_Document)
    except (msgspec.DecodeError, UnicodeError):
        return None
    process = found.process
    if process.id != id:
        return None
    return process if found.machine == machine or not _is_loopback(process.url) else _without_url(process)


def encode_end(fleet: ProcessFleet, id: str) -> bytes:
    """The last document of a process, signed: it has ended."""
    return msgspec.json.encode(_Signed(document=id, code=_end_code(fleet, id)))


def is_end(fleet: ProcessFleet, id: str, document: bytes) -> bool:
    """Whether a document proves that the process has ended. As ids are never used again, it may be repeated."""
    try:
        signed = msgspec.json.decode(document, type=_Signed)
        return hmac.compare_digest(_end_code(fleet, id).encode(), signed.code.encode())
    except (msgspec.DecodeError, UnicodeError):
        return False


def _end_code(fleet: ProcessFleet, id: str) -> str:
    return fleet.proof.code("ended", id.encode(errors="replace")).hex()


def _code(fleet: ProcessFleet, id: str, text: str) -> str:
    return fleet.proof.code("document", id.encode(errors="replace"), text.encode(errors="replace")).hex()


def _without_url(process: Process) -> Process:
    return msgspec.structs.replace(process, url="", pulsar_url="", pulsar_tls_url="", peer_url="")


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def this_machine() -> str:
    """An identifier shared by exactly the processes that share the loopback interface: the boot and the network namespace
    on Linux, else the name of the host."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return socket.gethostname()
