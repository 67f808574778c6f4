"""Puts staged publishing over the cluster's transactions together (docs/decisions/0062).

What is staged lies in topics that nobody else reads. A commit copies it to its topics in one transaction, with a record
in the log of the writer: so the record says whether the batch is there, whatever ends when.
"""

from collections.abc import Callable
from typing import Final

from penstock.client.aio.context import Context
from penstock.client.entries.transactions import Transactions
from penstock.engines.pulsar.schemas import Schemas
from penstock.engines.pulsar.topics import PulsarTopics
from penstock.engines.staging.staging import Staging
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .committing import Committing
from .part_writers import PulsarParts
from .parts import Staged
from .space import StagingSpace
from .writers import PulsarWriters

SWEEP_MS: Final = 5_000


def open_staging(
    space: StagingSpace,
    topics: PulsarTopics,
    schemas: Schemas,
    context: Callable[[], Context],
    clock: Clock,
    tasks: Tasks,
) -> Staging[Staged]:
    """Staging of a server; `context` has the connections for the caller that is served."""
    transactions = Transactions(space.cluster.context)
    committing = Committing(space, transactions, schemas, context)
    writers = PulsarWriters(space, transactions, committing, topics, clock)
    # The cluster deletes what is staged and not committed.
    return Staging(PulsarParts(space, clock), writers, clock, tasks, timeout_ms=0, sweep_ms=SWEEP_MS)
