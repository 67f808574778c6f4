"""What a log that is followed remembers of what came."""

from typing import Any

from penstock.engines.kafka.log import KafkaLog
from penstock.engines.kafka.naming import Place
from penstock.model.names import TopicName
from penstock.testing.clock import ManualClock


def test_a_gap_that_was_seen_in_parts_ends_where_the_last_part_does() -> None:
    """Markers and what was aborted may come in any pieces: the log was at its end between two transactions, or was not."""
    nobody: Any = None
    log = KafkaLog(TopicName.parse("a"), Place("a", 0, "id"), nobody, ManualClock())
    log._live, log._expected = True, 2
    for end in (3, 6, 7):
        log.reached(end)
    assert [log.gap_end(at) for at in (2, 3, 6, 7)] == [7, 7, 7, 7]
    assert log.next_offset == 7
