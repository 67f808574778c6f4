"""Rendered blocks within their bound."""

from array import array

from penstock.protocols.kafka_rest.blocks import Block, Blocks


def block(entry_id: int, size: int) -> Block:
    return Block(entry_id, entry_id, 0, b"", array("Q")).grown(entry_id + 1, [bytes(size)])


def test_the_least_recently_used_goes_first() -> None:
    blocks = Blocks(bytes_max=600)
    for entry_id in range(5):
        blocks.put(1, block(entry_id, 82))  # of 100 bytes each, with where it begins
    assert blocks.get(1, 0) is not None
    blocks.put(1, block(5, 82))
    blocks.put(1, block(6, 82))
    assert [n for n in range(7) if blocks.get(1, n)] == [0, 2, 3, 4, 5, 6]
    assert blocks.get(2, 0) is None


def test_a_block_is_replaced_and_a_giant_not_kept() -> None:
    blocks = Blocks(bytes_max=600)
    blocks.put(1, block(0, 10))
    blocks.put(1, block(0, 20))
    found = blocks.get(1, 0)
    assert found is not None
    assert len(found.frames) == 30
    blocks.put(1, block(0, 1000))
    assert blocks.get(1, 0) is None
    assert blocks._bytes == 0


def test_a_block_grows_and_is_cut() -> None:
    grown = Block(7, 7, 100, b"", array("Q")).grown(9, [b"a", b"bb"]).grown(10, [b""])
    assert (grown.until_entry, grown.end, list(grown.starts)) == (10, 133, [100, 111, 123])
    assert [grown.boundary(at) for at in (0, 100, 101, 111, 123, 124)] == [100, 100, 111, 111, 123, 133]
    assert grown.cut(100, 111) + grown.cut(111, 999) == grown.frames == grown.cut(0, 133)
