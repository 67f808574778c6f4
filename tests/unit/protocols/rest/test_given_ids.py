"""Ids that are read together mean what each of them means alone."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId, varint
from penstock.protocols.rest.cursor_change import read_ids

ENTRY = st.integers(0, 5) | st.integers(0, 2**40)
PARTITION = st.sampled_from([-1, 0, 300])


@st.composite
def batches(draw: st.DrawFn) -> list[str]:
    ledger, entry, partition = draw(st.integers(0, 2)), draw(ENTRY), draw(PARTITION)
    size = draw(st.integers(1, 40))
    ids = [str(MessageId(ledger, entry, partition, index, size)) for index in range(size)]
    low = draw(st.integers(0, size - 1))
    return ids[low : draw(st.integers(low, size))]


@st.composite
def alone(draw: st.DrawFn) -> list[str]:
    ledger, partition = draw(st.integers(0, 2)), draw(PARTITION)
    return [str(MessageId(ledger, entry, partition)) for entry in draw(st.lists(ENTRY, max_size=9))]


JAVA = b64encode(b"\x08\x01\x10\x02\x18" + varint(2**64 - 1) + b"\x20" + varint(2**64 - 1)).decode()
ODD = st.sampled_from(
    [
        "earliest",
        "latest",
        str(EARLIEST),
        str(LATEST),
        "",
        "?",
        "CAEQAg==",
        " CAEQAg==",
        "CAEQAg==\n",
        "CAEQAh==",
        '"',
        "\ud800",
        JAVA,
        str(MessageId(1, 2, -1, 5, 3)),
        str(MessageId(1, 2, -1, 3)),
        str(MessageId(-5, 2)),
    ]
).map(lambda text: [text])


@given(st.lists(batches() | alone() | ODD, max_size=8), st.booleans(), st.randoms())
def test_read_together(groups: list[list[str]], shuffled: bool, random: object) -> None:
    texts = [text for group in groups for text in group]
    if shuffled:
        random.shuffle(texts)  # type: ignore[attr-defined]
    masks: dict[int, dict[int, int]] = {}
    left: list[int] = []
    for at, text in enumerate(texts):
        try:
            found = MessageId.parse(text)
        except PenstockError:
            left.append(at)
            continue
        if text.strip() != text or text == "latest" or found.ledger < 0 or found.entry < 0:
            left.append(at)
            continue
        entries = masks.setdefault(found.ledger, {})
        bits = -1 if found.batch_index < 0 else 1 << found.batch_index
        entries[found.entry] = entries.get(found.entry, 0) | bits
    read = read_ids(texts)
    assert (read.masks, read.left) == (masks, left)


@pytest.mark.parametrize("size", [2**17, 2**31 - 1])
def test_a_large_batch_that_is_claimed_costs_nothing(size: int) -> None:
    """Ids of a batch are written for comparison only in proportion to those given."""
    texts = [str(MessageId(0, 0, -1, 7, size)), str(MessageId(0, 1, -1, 0, size))]
    assert read_ids(texts).masks == {0: {0: 1 << 7, 1: 1}}
