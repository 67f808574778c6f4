"""What servers kept in a cluster, by the version of its formats: the files of tests/vectors/cluster (`make.py` there)."""

from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.model.entry import Entry
from penstock.model.formats import VERSION
from penstock.model.message import OutMessage
from penstock.wire import entry as wire

FOLDER: Final = Path(__file__).parents[1] / "vectors" / "cluster"
VERSIONS: Final = (0, 1)  # 0: they name none
NEWER: Final = b"2"


class StoredRecord(msgspec.Struct):
    """A record of Kafka's, as librdkafka gives it."""

    the_key: bytes | None
    the_value: bytes | None
    the_headers: list[tuple[str, bytes | None]]
    the_offset: int = 0
    the_partition: int = 0

    def error(self) -> None: ...

    def key(self) -> bytes | None:
        return self.the_key

    def value(self) -> bytes | None:
        return self.the_value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.the_headers or None

    def offset(self) -> int:
        return self.the_offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_700_000_000_000

    def __len__(self) -> int:
        return len(self.the_value or b"")

    def newer(self, value: bytes | None = None) -> "StoredRecord":
        """The same of a version that is not known, with another value."""
        others = [header for header in self.the_headers if header[0] != VERSION]
        return msgspec.structs.replace(
            self, the_value=value or self.the_value, the_headers=[*others, (VERSION, NEWER)]
        )


@cache
def _file(name: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = msgspec.json.decode((FOLDER / f"{name}.json").read_bytes())
    return found


def records(version: int, place: str) -> list[StoredRecord]:
    """The records of one of Kafka's topics."""
    return [
        StoredRecord(
            _bytes(one["key"]),
            _bytes(one["value"]),
            [(name, _bytes(value)) for name, value in one["headers"]],
            one["offset"],
            one["partition"],
        )
        for one in _file(f"kafka-{version}")[place]
    ]


def messages(version: int, place: str) -> list[OutMessage]:
    """The messages of one of Pulsar's topics."""
    return [
        OutMessage(payload=_bytes(one["value"]) or b"", properties=one["properties"])
        for one in _file(f"pulsar-{version}")[place]
    ]


def entry_of(message: OutMessage, number: int = 0) -> Entry:
    """A message as an entry of a topic."""
    made = wire.encode([message], producer="p", sequence_id=number, publish_time=1, schema_version=None)
    return Entry(1, number, number, 1, 1, 0, made.data)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
