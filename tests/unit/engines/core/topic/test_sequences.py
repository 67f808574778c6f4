"""Deduplication where storing fails."""

from penstock.engines.core.topic.sequences import RECENT_MAX, Sequences
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import MessageId

FULL = PenstockError(ErrorKind.STORAGE_FULL, "full")


async def test_what_failed_is_new_again_and_is_not_remembered_for_ever() -> None:
    sequences = Sequences({"p": 4})
    for number in range(5, 5 + 3 * RECENT_MAX):
        assert sequences.admit("p", number) is None
        sequences.failed("p", number, FULL)
    assert len(sequences._producers["p"].failed) <= RECENT_MAX
    assert sequences.admit("p", 4) is not None  # it is stored
    for number in range(5, 8):  # long ago, but nothing later was stored
        assert sequences.admit("p", number) is None
        sequences.stored("p", number, MessageId(1, number))
        repeat = sequences.admit("p", number)
        assert repeat is not None
        assert repeat.result() == MessageId(1, number)
