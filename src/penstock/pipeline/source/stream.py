"""Topics as a stream: Spark's micro-batches, between marks that Spark keeps in its checkpoint."""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import DataLoss
from penstock.pipeline.http.calls import Calls
from penstock.pipeline.http.logs import Look, Size, sizes
from penstock.pipeline.http.retry import AWAY_S, START_S, Outage, retrying
from penstock.pipeline.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from .cluster import KafkaTopic, kafka_topics
from .follow import Follower
from .limits import Minimum, PollInterval, fit, share
from .marks import (
    Available,
    Key,
    LogPosition,
    Marks,
    advance,
    beginnings,
    between,
    reach,
    read_marks,
    write_marks,
)
from .offsets import times
from .options import parse_options
from .query import ask, carried, check_schema, check_there, plan_for
from .tasks import read_split, splits_for

if TYPE_CHECKING:
    from penstock.pipeline.decode.plan import Plan, Watch

log = logging.getLogger(__name__)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the messages of each batch.

    Spark keeps one of these in its own process on the driver, for all of a query's batches; what tasks use is
    a copy made before the first of them.
    """

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        self._options = parse_options(carried(schema, given), stream=True)
        self._plan = plan_for(self._options, schema)
        check_schema(schema, self._options, self._plan)
        self._watch = None if self._plan is None else _watch(self._plan)
        self._kafka: dict[str, KafkaTopic] = {}  # with fetch=direct: topics that batches read
        self._client: Calls | None = None
        self._poll_interval = PollInterval(self._options.poll_ms)
        self._minimum = Minimum(self._options.batch_rows_min, self._options.trigger_delay_ms / 1000)
        self._follower = Follower(self._options.subscription)
        self._seen: Look | None = None
        self._frozen = False  # by a trigger that reads what is available now, and ends
        self._idle_at: Any = None  # the start at which the last look found nothing
        self._logged: set[str] = set()  # losses that were logged
        self._absence = Outage(AWAY_S)

    # -- what Spark asks on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names
        """The start of a new query."""
        options = self._options
        asked = times(options.start)
        if any(ms > time.time() * 1000 for ms in asked):
            log.warning(
                "option startingTimestamp is in the future: the query begins with the next message that is published"
            )
        found = retrying(lambda: ask(self._http, options, times=asked), START_S)
        logs = check_there(options, found)
        self._learn_topics({log.topic for log in logs})
        return write_marks(Marks(beginnings(logs, options.start), initial=True))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limits of a batch; if rows and bytes are both limited, the stricter limit counts."""
        if self._options.batch_rows_max is not None:
            return ReadMaxRows(self._options.batch_rows_max)
        if self._options.batch_bytes_max is not None:
            return ReadMaxBytes(self._options.batch_bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember the available messages: nothing beyond them is read."""
        retrying(lambda: self._look(0), START_S)
        self._frozen = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch, `start` itself if there is nothing to read.

        Spark asks when everything before `start` has been committed; so the subscription follows here.

        While the server is away there is nothing to read, so that the query can be stopped meanwhile; but where
        that would be an answer in itself (the first batch, or a query that ends with nothing to read) it waits.
        """
        before = read_marks(start)
        if before.initial or self._frozen:
            return retrying(lambda: self._next(start, before, limit))
        try:
            end = self._next(start, before, limit)
        except PenstockError as error:
            time.sleep(self._absence.wait_s(error))
            return start
        self._absence.over()
        return end

    def _next(self, start: dict[str, Any], before: Marks, limit: ReadLimit) -> dict[str, Any]:
        if self._watch is not None:
            self._watch.look(self._http)
        if not before.initial:
            self._follower.follow(self._http, before)
        seen = self._look(self._poll_interval.wait_ms if start == self._idle_at else 0)
        found = reach(before, seen.logs or [])
        self._check(found)
        if self._options.fail_on_data_loss:
            check_there(self._options, seen)
        self._idle_at = None
        waiting = sum(found.backlog.values())
        if waiting and not self._frozen and self._minimum.holds(waiting):
            # New messages are looked for after the poll interval: each would end a wait at once.
            time.sleep(self._options.poll_ms / 1000)
            return start
        end = advance(before, found, self._takes(found, limit))
        if end is before:
            self._idle_at = start
            self._poll_interval.idle()
            return start
        self._poll_interval.busy()
        self._follower.begin(self._http, before, found)
        return write_marks(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The last seen end of each log: its distance from a batch's end is the query's lag."""
        if self._seen is None:
            return None
        heads = {
            Key(*each.key): LogPosition(each.ledger, each.partitioned, each.latest)
            for each in self._seen.logs or []
        }
        return write_marks(Marks(heads))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch, cut alike each time that the batch is run."""
        wanted = between(read_marks(start), read_marks(end))
        self._learn_topics({each.topic for each in wanted})
        return splits_for(self._options, wanted, self._plan, kafka=self._kafka)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch of the query is done; it may have been another source that had something to read."""
        self._poll_interval.busy()

    def stop(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- what it asks in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        return read_split(partition)

    # -- inside

    def _learn_topics(self, topics: set[str]) -> None:
        """With fetch=direct, learn how topics lie in the cluster; raises PipelineError if the server is not before Kafka."""
        new = topics - self._kafka.keys()
        if new and self._options.kafka:
            self._kafka |= retrying(lambda: kafka_topics(self._http, new))

    @property
    def _http(self) -> Calls:
        if self._client is None:
            self._client = Calls(self._options.server)
        return self._client

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    def _look(self, wait_ms: int) -> Look:
        if self._frozen and self._seen is not None:
            return self._seen
        seen = None if self._seen is None else self._seen.seen
        found = ask(self._http, self._options, seen=seen, wait_ms=wait_ms)
        if found.logs is not None or self._seen is None:
            self._seen = found
        return self._seen

    def _check(self, found: Available) -> None:
        losses = list(found.losses)
        for key in found.gone:
            what = f"{key.topic}, partition {key.partition}"
            if self._options.wants(TopicName.parse(key.topic), key.partition):
                losses.append(f"{what}: the topic was deleted")
            elif what not in self._logged:
                self._logged.add(what)
                log.warning("%s, which the checkpoint holds, is no longer part of the query", what)
        for loss in losses:
            if self._options.fail_on_data_loss:
                raise DataLoss(f"{loss} (option failOnDataLoss=false reads what there is)")
            if loss not in self._logged:
                self._logged.add(loss)
                log.warning("messages were lost: %s", loss)

    def _takes(self, found: Available, limit: ReadLimit) -> Mapping[Key, int]:
        rows, size = self._limits(limit)
        turn = sum(found.begins.values())
        takes = share(found.backlog, rows, turn)
        if size is None or not takes or self._holds_less(takes, size):
            return takes
        return self._within(found, takes, size, turn)

    def _holds_less(self, takes: Mapping[Key, int], size: int) -> bool:
        """Whether all that the logs of `takes` hold is known to be `size` bytes at most: then nothing need be measured."""
        logs = self._seen.logs if self._seen is not None else None
        held = [log.bytes for log in logs or [] if Key(*log.key) in takes]
        return all(held) and sum(held) <= size

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        if isinstance(limit, ReadAllAvailable):
            return None, None
        rows, size = self._options.batch_rows_max, self._options.batch_bytes_max
        if isinstance(limit, ReadMaxRows):
            rows = limit.max_rows
        if isinstance(limit, ReadMaxBytes):
            size = limit.max_bytes
        return rows, size

    def _within(self, found: Available, takes: Mapping[Key, int], size: int, turn: int) -> Mapping[Key, int]:
        """As many of `takes` as `size` bytes hold, in whole entries."""

        def measure(limits: Mapping[Key, int | None]) -> dict[Key, Size]:
            ranges = [(*key, found.begins[key], most) for key, most in limits.items()]
            return dict(zip(limits, sizes(self._http, ranges), strict=True))

        waiting = {key: each.total for key, each in measure(dict.fromkeys(takes)).items()}
        if sum(waiting.values()) <= size:
            return takes
        cuts = measure(dict(share(waiting, size, turn)))
        return {
            key: min(takes[key], cuts[key].end - found.begins[key])
            for key in fit({key: cut.bytes for key, cut in cuts.items()}, size, turn)
        }


def _watch(plan: "Plan") -> "Watch":
    from penstock.pipeline.decode.plan import Watch

    return Watch(plan)
