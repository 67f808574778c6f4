"""Answers to produce requests."""

from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

from penstock.broker.producer import Placement
from penstock.model.errors import PenstockError
from penstock.model.message_id import MessageId
from penstock.protocols.http.answers import to_json

from .batch_ids import Ending, split, tails

Result = MessageId | PenstockError

PIECES_MAX: Final = 64  # answers to batches of as many sizes are remembered, 100 bytes a message: some 6 MiB

_NON_RETRIABLE: Final = 1
_RETRIABLE: Final = 2


class Receipts:
    """Writes PIP-64's answers to batches of plain messages: what stands between the ids is made once."""

    def __init__(self) -> None:
        self._pieces: dict[tuple[Ending, int, int | None], list[bytes]] = {}

    def plain(self, placement: Placement, schema_version: int | None) -> bytes:
        """The answer for a batch published whole."""
        topic, count = placement.topic, placement.count
        if count == 1:
            alone = MessageId(topic.ledger, placement.entry_id, topic.name.partition).to_bytes()
            return b"".join((_opening(schema_version), b64encode(alone), _closing(topic.partition), b"]}"))
        head, ending = split(topic.ledger, placement.entry_id, topic.name.partition, count)
        key = ending, topic.partition, schema_version
        pieces = self._pieces.get(key)
        if pieces is None:
            if len(self._pieces) >= PIECES_MAX:
                self._pieces.clear()
            pieces = self._pieces[key] = _pieces(ending, topic.partition, schema_version)
        return head.join(pieces)


def _pieces(ending: Ending, partition: int, schema_version: int | None) -> list[bytes]:
    closing = _closing(partition)
    between = [tail + closing + b',{"messageId":"' for tail in tails(ending)]
    between[-1] = between[-1].removesuffix(b',{"messageId":"') + b"]}"
    return [_opening(schema_version), *between]


def _opening(schema_version: int | None) -> bytes:
    version = b"null" if schema_version is None else b"%d" % schema_version
    return b'{"schema_version":' + version + b',"messageIds":[{"messageId":"'


def _closing(partition: int) -> bytes:
    return b'","partition":%d,"error_code":null,"error":null}' % partition


def answer(
    results: Sequence[Result],
    versions: Sequence[int | None],
    schema_version: int | None,
    *,
    own_versions: bool,
) -> bytes:
    """PIP-64's answer; `own_versions` names each message's schema version, as they may differ."""
    slots: list[dict[str, Any]] = []
    for result, version in zip(results, versions, strict=True):
        slot: dict[str, Any]
        if isinstance(result, PenstockError):
            slot = {
                "messageId": None,
                "partition": None,
                "error_code": error_code(result),
                "error": result.message,
            }
        else:
            known = result.entry >= 0  # a repeat whose first id is not known any more has Pulsar's -1:-1
            slot = {
                "messageId": str(result),
                "partition": max(0, result.partition) if known else None,
                "error_code": None,
                "error": None,
            }
        if own_versions:
            slot["schema_version"] = version
        slots.append(slot)
    return to_json({"schema_version": schema_version, "messageIds": slots})


def shipped_answer(
    results: Sequence[Result], versions: Sequence[int | None], schema_version: int | None
) -> bytes:
    """The shipped dialect's answer (docs/rest.md): ids as Java's clients show them, `ledger:entry:partition`, and of a
    message in a batch `ledger:entry:partition:index`."""
    slots: list[dict[str, Any]] = []
    for result, version in zip(results, versions, strict=True):
        if isinstance(result, PenstockError):
            slots.append(
                {"errorCode": error_code(result), "error": result.message, "errorMsg": result.message}
            )
        else:
            text = f"{result.ledger}:{result.entry}:{result.partition}"
            if result.batch_index >= 0:
                text += f":{result.batch_index}"
            slots.append(
                {"messageId": text, "errorCode": 0, "schemaVersion": -1 if version is None else version}
            )
    told = -1 if schema_version is None else schema_version
    return to_json({"messagePublishResults": slots, "schemaVersion": told})


def error_code(error: PenstockError) -> int:
    """PIP-64's code of a message that was not published."""
    return _RETRIABLE if error.retriable else _NON_RETRIABLE
