"""A process of a service before Kafka that owns slots, and saves their cursors without a pause until its stdin is closed.

    python -m tests.support.kafka_owner BOOTSTRAP PREFIX NAME

It prints what happens, a JSON array a line: ["opened", slots], ["closed", slots], ["saved", [[slot, offset], …]] once the save is
answered, ["failed", text], ["gone"].
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial

import msgspec

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.cluster import KafkaCluster
from penstock.engines.kafka.driver.lease import Lease
from penstock.engines.kafka.driver.shared_log import Journal, JournalReader
from penstock.engines.kafka.internal import CURSORS, SLOTS, have_owner_topics, owner_group
from penstock.engines.kafka.serving import cursors as cursors_module
from penstock.engines.kafka.serving import owner as owner_module
from penstock.engines.kafka.serving.cursors import Cursors
from penstock.engines.kafka.serving.owner import SlotOwner
from penstock.engines.kafka.serving.state import CursorRecord, slot_of
from penstock.engines.subscription.offsets import OffsetSet
from penstock.model.errors import PenstockError
from penstock.runtime.clock import LoopClock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

TOPIC, SUBSCRIPTION = "orders", "s"
AT_ONCE = 8  # slots in a save
AGAIN_S = 0.05  # after a save that failed
STEP = 3  # every third offset is acknowledged at first: cursors have chunks
TIMEOUT_MS = 15_000


def say(*what: object) -> None:
    """A line at once, whole: another process may stop or kill this one."""
    os.write(1, msgspec.json.encode(what) + b"\n")


class Service:
    """The parts of a process, put together; `SlotHost` of its slots."""

    def __init__(self, bootstrap: str, prefix: str, name: str) -> None:
        settings = ClusterSettings(url=f"kafka://{bootstrap}", documents_topic=prefix, timeout_ms=TIMEOUT_MS)
        self.cluster = KafkaCluster(settings)
        self.group = owner_group(settings)
        self.tasks = Tasks()
        self.name = name
        self.served: dict[int, OffsetSet] = {}
        clients = self.cluster.clients

        def open_journal(reader: JournalReader) -> Journal:
            return Journal(self.cluster.admin, prefix + CURSORS, reader)

        self.cursors = Cursors(
            open_journal, self.tasks, Failures(LoopClock()), group=self.group, process=self.name
        )
        self.owner = SlotOwner(
            self,
            self.cursors,
            lambda listener: Lease(clients, prefix + SLOTS, self.group, listener),
            self.tasks,
        )
        self.lease = self.owner.lease

    def set_slots(self, slots: int) -> None:
        """The number of slots of the service, before anything is read."""
        self.cursors.set_slots(slots)
        # Any partition of this slot.
        self.partitions = {slot_of(TOPIC, partition, slots): partition for partition in range(slots)}

    async def start(self) -> None:
        await self.cluster.start()
        self.set_slots(await have_owner_topics(self.cluster))
        await self.cursors.start()
        self.owner.start()

    async def close(self) -> None:
        await self.lease.close()
        await self.cursors.close()
        await self.tasks.close()
        await self.cluster.close()

    # -- SlotHost

    def opened(self, slots: Sequence[int]) -> None:
        for slot in slots:
            found = list(self.cursors.load(slot).values())
            self.served[slot] = found[0].offsets() if found else OffsetSet()
        say("opened", slots)

    async def closing(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.served.pop(slot, None)

    def closed(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self.served.pop(slot, None)
        say("closed", slots)

    def confirmed(self) -> None:
        """`save_on` asks the owner each time."""

    def refused(self, error: PenstockError) -> None:
        say("refused", error.message)

    # -- saves

    async def save_on(self) -> None:
        turn = 0
        while True:
            own = [slot for slot in sorted(self.served) if self.owner.owns(slot)]
            if not own:
                await asyncio.sleep(AGAIN_S)
                continue
            turn += 1
            chosen = {own[(turn * AT_ONCE + n) % len(own)] for n in range(AT_ONCE)}
            await self.save({slot: self.served[slot] for slot in chosen})

    async def save(self, chosen: dict[int, OffsetSet]) -> None:
        acked, changes = [], []
        for slot, cursor in chosen.items():
            beyond = list(cursor.ranges())
            offset = beyond[-1][1] + STEP if beyond and len(beyond) < STEP else cursor.mark
            if not beyond:
                offset = cursor.mark + STEP
            cursor.add(offset, 1)
            acked.append([slot, offset])
            place = TOPIC, self.partitions[slot], SUBSCRIPTION
            changes.append(CursorRecord(*place, "id", cursor.mark, cursor.take_changes()))
        try:
            await self.cursors.save(changes)
        except PenstockError as error:
            for cursor, change in zip(chosen.values(), changes, strict=True):
                cursor.touch(change.chunks)
            say("failed", error.message)
            await asyncio.sleep(AGAIN_S)
        else:
            say("saved", acked)


async def main(bootstrap: str, prefix: str, name: str) -> None:
    cursors_module.CHECKPOINT_RECORDS = 500  # type: ignore[misc] # many checkpoints and trims
    owner_module.MAINTAIN_S = 0.5  # type: ignore[misc]
    service = Service(bootstrap, prefix, name)
    await service.start()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, partial(_look, ended))
    saving = service.tasks.spawn(service.save_on(), "save")
    await ended.wait()
    await service.lease.close()
    saving.cancel()
    await service.close()
    say("gone")


def _look(ended: asyncio.Event) -> None:
    if not os.read(0, 1):
        ended.set()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
