"""Topics as a stream for Spark 4.0 and 4.1, which do not say where a batch begins, nor ask how much it may hold.

Where the last batch ended is remembered here. It is not known when a query is started again: then everything that is
there makes one batch, whatever the limits say.
"""

from typing import Any

from penstock.pipeline.http.retry import retrying

from .stream import TopicStreamReader


class UnaskedStreamReader(TopicStreamReader):
    """Asked as those versions ask."""

    _last: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names
        """Where a new query begins."""
        self._last = super().initialOffset()
        return self._last

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """Where the next batch ends."""
        if self._last is None:
            retrying(lambda: self._look(0))
            self._last = self.reportLatestOffset()
            assert self._last is not None
        else:
            self._last = super().latestOffset(self._last, self.getDefaultReadLimit())
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        """The tasks of a batch; of one that is run again, too, after which nothing else tells where it ended."""
        self._last = end
        return super().partitions(start, end)
