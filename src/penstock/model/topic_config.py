"""The policies of a topic as values of Kafka's topic configuration."""

from typing import Final

from .policy import Retention

RETENTION_MS: Final = "retention.ms"
RETENTION_BYTES: Final = "retention.bytes"
CLEANUP: Final = "cleanup.policy"


def retention_ms(kept: Retention) -> str:
    return "-1" if kept.minutes < 0 else str(kept.minutes * 60_000)


def retention_bytes(kept: Retention) -> str:
    return "-1" if kept.mb < 0 else str(kept.mb << 20)


def cleanup(threshold: int, kept: Retention | None) -> str:
    """The value of `cleanup.policy` for a compaction threshold. Compacted topics delete only what retention bounds."""
    if threshold <= 0:
        return "delete"
    return "compact" if kept is None or kept == Retention() else "compact,delete"
