"""Which consumer of a Key_Shared subscription has which key: as Pulsar 4 shares them."""

from typing import Final

from penstock.engines.embedded.subscription import Consumer
from penstock.engines.embedded.subscription.key_shared import KeyShared
from penstock.model.policy import ConsumerOptions, SubscriptionType
from penstock.wire.entry import WireFormat

# Told by a Pulsar 4.0.8 with its defaults: which of the consumers a, b, a and c, subscribed in this order, got the
# keys key-0 to key-59.
OWNERS: Final = "101210002210230210013001010313212120130023012223220111102022"


def consumer(name: str) -> Consumer:
    return Consumer(name, "s", ConsumerOptions(type=SubscriptionType.KEY_SHARED))


def owners(selection: KeyShared, consumers: list[Consumer]) -> str:
    found = [selection.owner(selection.hash_of(b"key-%d" % number)) for number in range(len(OWNERS))]
    return "".join(str(consumers.index(each)) for each in found if each is not None)


def test_the_keys_are_shared_as_in_pulsar() -> None:
    selection = KeyShared(WireFormat(), 0)
    consumers = [consumer(name) for name in "abac"]
    for each in consumers:
        selection.add(each)
    assert owners(selection, consumers) == OWNERS


def test_who_leaves_gives_its_keys_to_the_others_and_takes_none_of_theirs() -> None:
    selection = KeyShared(WireFormat(), 0)
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
