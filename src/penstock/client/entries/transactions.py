"""Transactions of a cluster: entries in several topics that readers see together, or never.

A coordinator is the owner of a partition of a system topic. It assigns the ids, learns of each topic before the first
entry goes there, and ends the transaction; a transaction that is not ended is aborted after its timeout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.client.aio.context import Context
from penstock.client.aio.link import Link
from penstock.client.errors import (
    InvalidTxnStatusError,
    PulsarException,
    TransactionCoordinatorNotFoundError,
    TransactionNotFound,
)
from penstock.wire.pulsar_pb2 import (
    CommandAddPartitionToTxn,
    CommandEndTxn,
    CommandNewTxn,
    CommandTcClientConnectRequest,
    TxnAction,
)

COORDINATORS: Final = "persistent://pulsar/system/transaction_coordinator_assign"

TransactionId = tuple[
    int, int
]  # the most and the least significant bits; the most are the coordinator's number


class Transactions:
    """Begins and ends transactions. After an error of `end` the outcome is not known."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._count = 0
        self._next = 0
        self._links: dict[int, Link] = {}

    async def begin(self, timeout_ms: int) -> TransactionId:
        """A new transaction, which the cluster aborts after `timeout_ms`."""
        number = self._next % max(1, await self._coordinators())
        self._next += 1
        # The field is named for seconds, and holds milliseconds.
        answer = await self._ask(number, CommandNewTxn(txn_ttl_seconds=timeout_ms, tc_id=number))
        return answer.txnid_most_bits, answer.txnid_least_bits

    async def add(self, transaction: TransactionId, topics: Sequence[str]) -> None:
        """Register the topics of entries, before the first of them."""
        most, least = transaction
        command = CommandAddPartitionToTxn(
            txnid_most_bits=most, txnid_least_bits=least, partitions=list(topics)
        )
        await self._ask(most, command)

    async def end(self, transaction: TransactionId, *, commit: bool) -> None:
        """Commit or abort; raises TransactionNotFound and InvalidTxnStatusError for one that has ended otherwise."""
        most, least = transaction
        action = TxnAction.COMMIT if commit else TxnAction.ABORT
        await self._ask(most, CommandEndTxn(txnid_most_bits=most, txnid_least_bits=least, txn_action=action))

    async def _ask(self, number: int, command: Any) -> Any:
        link = await self._link(number)
        try:
            return await link.ask(command, self._context.timeout_s)
        except TransactionCoordinatorNotFoundError:
            self._links.pop(number, None)  # another broker has it
            raise

    async def _coordinators(self) -> int:
        if not self._count:
            self._count = await self._context.lookup.partitions(COORDINATORS, create=False)
        return self._count

    async def _link(self, number: int) -> Link:
        known = self._links.get(number)
        if known is not None and not known.closed:
            return known
        partitioned = await self._coordinators()
        topic = f"{COORDINATORS}-partition-{number}" if partitioned else COORDINATORS
        link = await self._context.lookup.link(topic)
        await link.ask(CommandTcClientConnectRequest(tc_id=number), self._context.timeout_s)
        self._links[number] = link
        return link


def has_ended(error: PulsarException) -> bool:
    """Whether an error says that a transaction has ended before."""
    return isinstance(error, (InvalidTxnStatusError, TransactionNotFound))
