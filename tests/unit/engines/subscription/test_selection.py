"""Which consumer of a Key_Shared subscription has which key: as Pulsar 4 shares them."""

from typing import Final

from penstock.engines.subscription import Consumer
from penstock.engines.subscription.key_shared import KeyShared
from penstock.engines.subscription.pending import Pending
from penstock.engines.subscription.receiver import Receiver
from penstock.engines.subscription.selection import Hashes
from penstock.model.entry import Entry
from penstock.model.hashing import sticky_hash
from penstock.model.message import OutMessage
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.wire import entry as wire

# Told by a Pulsar 4.0.8 with its defaults: which of the consumers a, b, a and c, subscribed in this order, got the
# keys key-0 to key-59.
OWNERS: Final = "101210002210230210013001010313212120130023012223220111102022"


def consumer(name: str) -> Consumer:
    return Consumer(name, "s", ConsumerOptions(type=SubscriptionType.KEY_SHARED, flow=True))


def owners(selection: KeyShared, consumers: list[Consumer]) -> str:
    found = [selection.owner(selection.hash_of(b"key-%d" % number)) for number in range(len(OWNERS))]
    return "".join(str(consumers.index(each)) for each in found if each is not None)


def test_the_keys_are_shared_as_in_pulsar() -> None:
    selection = KeyShared(wire.keys, 0)
    consumers = [consumer(name) for name in "abac"]
    for each in consumers:
        selection.add(each)
    assert owners(selection, consumers) == OWNERS


def test_who_leaves_gives_its_keys_to_the_others_and_takes_none_of_theirs() -> None:
    selection = KeyShared(wire.keys, 0)
    consumers = [consumer(name) for name in "abac"]
    for each in consumers:
        selection.add(each)
    selection.remove(consumers[0])
    now = owners(selection, consumers)
    assert "0" not in now
    assert all(after == before for after, before in zip(now, OWNERS, strict=True) if before != "0")
    selection.add(consumers[0])  # under the number that is free again
    assert owners(selection, consumers) == OWNERS
    for each in consumers:
        selection.remove(each)
    assert selection.owner(1) is None


def test_hashes_of_one_kind_are_not_taken_for_those_of_the_other() -> None:
    """A ring and ranges hash otherwise: what is remembered of a batch ends with the consumers it was dealt to."""
    messages = [OutMessage(payload=b"x", key=key) for key in "abcdefgh"]
    made = wire.encode(messages, producer="p", sequence_id=0, publish_time=1, schema_version=None)
    entry = Entry(1, 0, 0, made.count, 1, 0, made.data)
    selection = KeyShared(wire.keys, 0)
    on_ring = consumer("a")
    on_ring.flow(3)
    selection.add(on_ring)
    out: list[Pending] = []

    def give(to: Receiver, one: Entry, mask: int, hashes: Hashes | None) -> None:
        out.append(Pending(one.entry_id, one.offset, one.count, mask, to, hashes))

    selection.deal(entry, 0xFF, give)
    assert [part.mask.bit_count() for part in out] == [3]
    selection.remove(on_ring)
    selection.settled(out[0], out[0].mask)
    selection.release_all()
    out.clear()
    halves = [
        Consumer("b", "s", ConsumerOptions(type=SubscriptionType.KEY_SHARED, flow=True, key_ranges=(half,)))
        for half in ((0, 32767), (32768, 65535))
    ]
    for half in halves:
        half.flow(100)
        selection.add(half)
    selection.deal(entry, 0xFF, give)
    hashes = [sticky_hash(key.encode()) for key in "abcdefgh"]
    assert [part.hashes for part in out] == [hashes, hashes]
    assert {part.consumer: part.mask for part in out} == {
        halves[upper]: sum(1 << at for at, found in enumerate(hashes) if (found > 32767) == upper)
        for upper in (False, True)
    }
