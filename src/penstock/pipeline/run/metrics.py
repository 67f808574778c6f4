"""The names under which a query's counts stand in Spark's progress."""

from typing import Final

METRICS: Final = "penstock"  # rows written, dead letters, rows dropped
WARN: Final = "warn "  # and a view's name: how often each expectation did not hold
