"""What an engine keeps for the schema registry: its records, in one order for all processes of a service."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from penstock.model.names import TopicName

OWN_KEYS: Final = '{"keytype":"PENSTOCK_'  # how the keys of records begin that no other registry may see


class RegistryRecord(msgspec.Struct, frozen=True):
    """A key and a value as the topic `_schemas` has them; no value deletes the record of the key.

    `own` is a JSON object with what only this registry knows of the record, which other registries do not see.
    """

    key: str
    value: bytes | None
    own: bytes = b""


class OvertakenError(Exception):
    """Another process has written since this one last did: nothing was written."""


class RegistryRecords(Protocol):
    """The records of the registry. A process that writes is the only writer until another one takes over."""

    @property
    def writer(self) -> str:
        """The process that wrote last, as far as this one knows; empty if it did not name itself."""

    number_schemas: Callable[[], Awaitable[None]] | None
    """Gives ids to new schemas of topics; set by the registry for an engine that frames values with them."""

    async def open(self, learn: Callable[[RegistryRecord], None]) -> None:
        """Call `learn` with every record, and from then on with each that any process writes. Raises UNAVAILABLE, FORBIDDEN."""

    async def catch_up(self) -> None:
        """Have learned all that was written until now. Raises UNAVAILABLE."""

    async def take(self) -> None:
        """Become the writer, and learn what others wrote before. Raises OvertakenError, UNAVAILABLE, FORBIDDEN, NOT_SUPPORTED."""

    async def write(self, records: Sequence[RegistryRecord], process: str) -> None:
        """Write records, and learn them. `process` names this one, for `writer`.

        Raises OvertakenError, and UNAVAILABLE if it is not known whether they were written. Of several records the first may be
        written alone.
        """


class RegistryAnswer(msgspec.Struct, frozen=True):
    """What another registry answered."""

    status: int
    content_type: str
    body: bytes


class OtherRegistry(Protocol):
    """A configured registry, to which requests are passed on under the server's own credentials."""

    def topic_of(self, subject: str) -> TopicName | None:
        """The topic whose values, or keys, have the schemas of a subject; None if it is not known to be of one."""

    def subject_of(self, topic: TopicName, end: str) -> str:
        """The subject of a topic's values (`-value`), or keys (`-key`)."""

    async def pass_on(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> RegistryAnswer:
        """Send a request, `target` being its path and query. Raises UNAVAILABLE if it is not answered."""
