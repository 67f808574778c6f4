"""Topics as a stream for Spark 4.0 and 4.1, which neither pass the start of a batch, nor ask for its limits.

Where the last batch ended is remembered here; Spark asks for the tasks of the last batch of the run before, or of an empty
one, and so tells. It is not known in the first batch of a new query, and where `availableNow` asks beforehand: then all that
is there makes one batch, whatever the limits say, and what was lost is looked for when Spark says where it begins.
"""

from typing import Any

from penstock.pipeline.http.retry import retrying

from .marks import reach, read_marks
from .stream import TopicStreamReader


class UnaskedStreamReader(TopicStreamReader):
    """Asked as those versions ask."""

    _last: dict[str, Any] | None = None
    _first = False  # whether the batch that comes was ended without knowing its beginning

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names
        """The start of a new query."""
        self._last = super().initialOffset()
        return self._last

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # noqa: N802
        """The end of the next batch."""
        if self._last is None:
            retrying(lambda: self._look(0))
            self._last = self.reportLatestOffset()
            self._first = True
            assert self._last is not None
        else:
            self._last = super().latestOffset(self._last, self.getDefaultReadLimit())
        return self._last

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        """The tasks of a batch; of a repeated one, too, after which nothing else shows its end."""
        if self._first:
            self._begin(start)
            self._first = False
        self._last = end
        return super().partitions(start, end)

    def _begin(self, start: dict[str, Any]) -> None:
        """What `latestOffset` does if it gets the start. Raises DataLoss."""
        before = read_marks(start)
        found = reach(before, retrying(lambda: self._look(0)).logs or [])
        self._check(found)
        self._follower.begin(self._http, before, found)
