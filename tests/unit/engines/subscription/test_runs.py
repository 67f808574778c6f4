"""Entries dealt as a run go to whom they would go one by one, and keys are decoded once."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.delivery import Delivery
from penstock.engines.subscription import Consumer
from penstock.engines.subscription.key_shared import KNOWN_MAX, KeyShared
from penstock.engines.subscription.pending import Pending
from penstock.engines.subscription.selection import Exclusive, Failover, Hashes, Selection, Shared
from penstock.model.entry import Entry
from penstock.model.message import OutMessage
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.wire import entry as wire

TYPES = {
    Exclusive: SubscriptionType.EXCLUSIVE,
    Failover: SubscriptionType.FAILOVER,
    Shared: SubscriptionType.SHARED,
    KeyShared: SubscriptionType.KEY_SHARED,
}
SOURCE: Any = SimpleNamespace(name="s")


def stored(keys: Sequence[Sequence[str]]) -> list[Entry]:
    """An entry for each list of keys."""
    found, offset = [], 0
    for number, some in enumerate(keys):
        messages = [OutMessage(payload=b"x" * 10, key=key) for key in some]
        made = wire.encode(messages, producer="p", sequence_id=offset, publish_time=1, schema_version=None)
        found.append(Entry(1, number, offset, made.count, 1, 0, made.data))
        offset += made.count
    return found


class Given:
    """A selection with its consumers, and what each of them got of which entries."""

    def __init__(self, rules: type[Selection], consumers: Sequence[dict[str, Any]]) -> None:
        self.selection = rules(wire.keys, 0)
        self.parts: list[Pending] = []
        for number, options in enumerate(consumers):
            permits = options["permits"]
            rest = {name: value for name, value in options.items() if name != "permits"}
            made = Consumer(f"c{number}", "s", ConsumerOptions(type=TYPES[rules], flow=True, **rest))
            made.flow(permits)
            self.selection.add(made)

    def give(self, consumer: Any, entry: Entry, mask: int, hashes: Hashes | None) -> None:
        self.give_all(consumer, [(entry, mask, hashes)])

    def give_all(self, consumer: Any, run: Sequence[tuple[Entry, int, Hashes | None]]) -> None:
        for entry, mask, hashes in run:
            self.parts.append(Pending(entry.entry_id, entry.offset, entry.count, mask, consumer, hashes))
            consumer.deliver([Delivery(SOURCE, entry, mask, 0)], mask.bit_count(), len(entry.data))

    def one_by_one(self, entries: Sequence[Entry]) -> list[tuple[int, int]]:
        """What the entries leave, up to the first that finds no room."""
        left: list[tuple[int, int]] = []
        for entry in entries:
            if self.selection.room() <= 0:
                break
            rest = self.selection.deal(entry, (1 << entry.count) - 1, self.give)
            left.append((entry.entry_id, rest))
        return left

    def got(self) -> list[list[tuple[int, int, int]]]:
        return [[(d.entry.entry_id, d.mask, c.permits) for d in c.outbox] for c in self.consumers]

    @property
    def consumers(self) -> list[Consumer]:
        return sorted(self.selection.consumers, key=lambda c: c.name)  # type: ignore[arg-type, return-value]


OPTIONS = st.fixed_dictionaries(
    {
        "permits": st.integers(1, 30),
        "priority": st.integers(0, 1),
        "window": st.none() | st.integers(1, 12),
        "whole_entries": st.sampled_from([False, False, True]),
        "outbox_bytes_max": st.sampled_from([200, 10_000]),
    }
)
KEYS = st.lists(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=7), min_size=1, max_size=12)


@given(
    st.sampled_from([Failover, Shared, Shared, KeyShared]), st.lists(OPTIONS, min_size=1, max_size=4), KEYS
)
def test_a_run_is_dealt_as_its_entries_are(
    rules: type[Selection], consumers: list[dict[str, Any]], keys: list[list[str]]
) -> None:
    entries = stored(keys)
    run, single = Given(rules, consumers), Given(rules, consumers)
    left: list[tuple[int, int]] = []
    at = 0
    while at < len(entries) and run.selection.room() > 0:
        done = run.selection.deal_run(entries[at:], run.give_all)
        left += [(entry.entry_id, 0) for entry in entries[at : at + done]]
        at += done
        if not done:
            left += run.one_by_one(entries[at : at + 1])
            at += 1
    assert left == single.one_by_one(entries)
    assert run.got() == single.got()
    assert run.selection.aside == single.selection.aside
    for part in sorted(run.parts, key=lambda part: part.entry_id):
        run.selection.settled(part, part.mask)
    for part in sorted(single.parts, key=lambda part: part.entry_id):
        single.selection.settled(part, part.mask)
    assert run.selection.aside == single.selection.aside


def test_who_names_ranges_gets_no_runs() -> None:
    selection = Exclusive(wire.keys, 0)
    options = ConsumerOptions(type=SubscriptionType.EXCLUSIVE, key_ranges=((0, 10),))
    selection.add(Consumer("a", "s", options))
    assert selection.deal_run(stored(["a"]), lambda consumer, run: None) == 0


def test_keys_are_decoded_once_while_messages_wait() -> None:
    decoded: list[int] = []

    def keys(entry: Entry) -> list[bytes]:
        decoded.append(entry.entry_id)
        return wire.keys(entry)

    selection = KeyShared(keys, 0)
    consumer = Consumer("a", "s", ConsumerOptions(type=SubscriptionType.KEY_SHARED, flow=True))
    selection.add(consumer)
    consumer.flow(1)
    entry = stored(["abcdefgh"])[0]
    given: list[Pending] = []

    def give(to: Any, one: Entry, mask: int, hashes: Hashes | None) -> None:
        given.append(Pending(one.entry_id, one.offset, one.count, mask, to, hashes))
        to.deliver([Delivery(SOURCE, one, mask, 0)], mask.bit_count(), len(one.data))

    selection.deal(entry, 0xFF, give)
    for _ in range(7):
        part = given[-1]
        selection.settled(part, part.mask)
        consumer.flow(1)
        for waiting in selection.release_for_room():
            selection.deal(entry, waiting.mask, give)
    assert sum(part.mask for part in given) == 0xFF
    assert decoded == [0]
    selection.settled(given[-1], given[-1].mask)
    assert not selection._known  # nothing is out or waits


def test_what_is_known_of_keys_has_a_bound() -> None:
    selection = KeyShared(wire.keys, 0)
    selection.add(Consumer("a", "s", ConsumerOptions(type=SubscriptionType.KEY_SHARED)))
    entry = stored([[str(n) for n in range(1000)]])[0]
    for number in range(3 * KNOWN_MAX // 1000):
        same = Entry(1, number, 0, entry.count, 1, 0, entry.data)
        selection.deal(same, 1, lambda *given: None)
    assert selection._known_messages <= KNOWN_MAX
    assert (
        sum(len(one) for one in selection._known.values() if isinstance(one, list))
        == selection._known_messages
    )
