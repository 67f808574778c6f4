"""The memory is bounded."""

from penstock.wire.memo import ENTRIES_MAX, VALUE_BYTES_MAX, Memo


def test_values_are_made_once() -> None:
    made: list[int] = []

    def make(size: int) -> bytes:
        made.append(size)
        return bytes(size)

    memo: Memo[int] = Memo(make)
    assert memo[3] == memo[3] == b"\0\0\0"
    assert made == [3]


def test_it_never_holds_more_than_it_may() -> None:
    memo: Memo[int] = Memo(lambda n: b"%d" % n)
    for n in range(3 * ENTRIES_MAX):
        assert memo[n] == b"%d" % n
        assert len(memo) <= ENTRIES_MAX


def test_long_values_are_not_kept() -> None:
    memo: Memo[int] = Memo(bytes)
    assert len(memo[VALUE_BYTES_MAX + 1]) == VALUE_BYTES_MAX + 1
    assert len(memo[VALUE_BYTES_MAX]) == VALUE_BYTES_MAX
    assert list(memo) == [VALUE_BYTES_MAX]
