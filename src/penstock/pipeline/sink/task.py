"""One task of a write: batches of Arrow in, entries out, their values encoded as each topic has it."""

import time
from collections import Counter
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType, StructType

from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.calls import Calls

from .entries import EntryWriter
from .messages import columns_of, dead_letters, milliseconds, pairs_of, text_of
from .options import Options, chooses_version, is_plain, parse_topic
from .target import Target

if TYPE_CHECKING:
    from penstock.pipeline.encode.plan import Encoding

BATCH_BYTES_MAX: Final = 64 << 20  # worked on at once


class Plans:
    """The encoding of each topic. The option's is planned on the driver; others where they come up, in tasks.

    So are those of text: they cannot be refused, and a plan is made for every batch.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._kind = schema["value"].dataType
        self._how = options.encode
        self._known: dict[TopicName, Encoding | None] = {}
        self._versions: dict[TopicName, set[int]] = {}
        if options.topic is not None and not self._is_automatic_text:
            self.encoding_of(options.topic)

    @property
    def _is_automatic_text(self) -> bool:
        """Text that takes the topic's schema where that is of text."""
        return isinstance(self._kind, StringType) and self._how == "auto"

    def encoding_of(self, topic: TopicName) -> "Encoding | None":
        """The encoding for a topic's values; None where they go out as the bytes they are. Raises PipelineError."""
        if topic not in self._known:
            self._known[topic] = self._plan(topic)
        return self._known[topic]

    def check_versions(self, topic: TopicName, versions: Collection[int]) -> None:
        """Raises PipelineError for a version that the topic's schema does not have."""
        known = self._versions.setdefault(topic, set())
        if all(version in known for version in versions):
            return
        from penstock.pipeline.http.schemas import all_versions

        with Calls(self._options.server) as client:
            known |= set(all_versions(client, str(topic.base)))
        for version in versions:
            if version not in known:
                there = f"there are {', '.join(map(str, sorted(known)))}" if known else "it has no schema"
                raise PipelineError(
                    f"column schema_version: {topic} has no schema version {version}; {there}"
                )

    def _plan(self, topic: TopicName) -> "Encoding | None":
        if is_plain(self._kind) and self._how in ("auto", "none") and not self._is_automatic_text:
            return None
        from penstock.pipeline.encode.plan import plan_encoding

        with Calls(self._options.server) as client:
            return plan_encoding(self._how, self._kind, topic, client)


class Identity(NamedTuple):
    """Which batch of whom, and which of its partitions."""

    writer: str
    batch: int
    partition: int


class Task:
    """Writes the rows of one partition."""

    def __init__(self, options: Options, identity: Identity, entry_writer: EntryWriter, plans: Plans) -> None:
        self._options = options
        self._identity = identity
        self._entry_writer = entry_writer
        self._plans = plans
        self._targets: dict[TopicName, Target] = {}
        self._dead_letters: Target | None = None
        self.messages: Counter[str] = Counter()  # by topic, without its partitions; dead letters too

    def write(self, batches: Iterator[pa.RecordBatch]) -> None:
        """Write everything. Raises PipelineError, which names the place; BatchConflict."""
        for whole in batches:
            for batch in _pieces(whole):
                self._write(batch)
        targets = [*self._targets.values(), *filter(None, (self._dead_letters,))]
        for target in targets:
            target.finish()
        self._entry_writer.finish()
        for target in targets:
            self._entry_writer.confirm(target.last_sequence_ids())

    def _write(self, batch: pa.RecordBatch) -> None:
        if "_error" in batch.schema.names:
            bad = pc.is_valid(batch.column("_error"))
            if pc.any(bad).as_py():
                self._write_dead_letters(batch.filter(bad))
                batch = batch.filter(pc.invert(bad))
        if batch.num_rows == 0:
            return
        if self._options.topic is not None:
            self._write_to(self._options.topic, batch)
            return
        column = batch.column("topic")
        if column.null_count:
            raise PipelineError("column topic is null in some row: option topic would say where it goes")
        encoded = column.dictionary_encode()
        names = encoded.dictionary.to_pylist()
        for number, name in enumerate(names):
            rows = batch if len(names) == 1 else batch.filter(pc.equal(encoded.indices, number))
            self._write_to(parse_topic("column topic", name), rows)

    def _write_to(self, topic: TopicName, batch: pa.RecordBatch) -> None:
        self.messages[str(topic.base)] += batch.num_rows
        target = self._targets.get(topic)
        if target is None:
            target = self._targets[topic] = self._target(topic, self._plans.encoding_of(topic))
        values = batch.column("value")
        columns = columns_of(batch, target.encode(values))
        keys = target.keys(values)
        if keys is not None:
            if "key" in batch.schema.names:
                raise PipelineError(f"column key is not for {topic}: its schema takes keys from column value")
            columns = columns._replace(key=keys)
        wanted = None
        if "partition" in batch.schema.names and "offset" not in batch.schema.names:
            wanted = batch.column("partition")
        versions = None
        if chooses_version(batch.schema.names):
            versions = batch.column("schema_version").cast(pa.int64())
            self._plans.check_versions(topic, pc.unique(versions).drop_null().to_pylist())
        target.write(columns, wanted, _deliver_at(batch), lambda row: _properties(batch, row), versions)

    def _write_dead_letters(self, batch: pa.RecordBatch) -> None:
        topic = self._options.dead_letter_topic
        assert topic is not None, "checked with the columns"
        if self._dead_letters is None:
            # A producer of their own: where they share a topic with good rows, their numbers are not those rows'.
            self._dead_letters = self._target(topic, None, "-dead-letters")
        self.messages[str(topic.base)] += batch.num_rows
        found = dead_letters(batch, self._identity.writer, self._identity.batch)
        self._dead_letters.write(found, None, None, None)

    def _target(self, topic: TopicName, encoding: "Encoding | None", suffix: str = "") -> Target:
        identity = self._identity
        versions = {topic: encoding.schema_version} if encoding is not None and encoding.has_keys else None
        opened = self._entry_writer.stages.open_topics([topic], versions)
        return Target(
            topic,
            opened.topics[topic],
            encoding,
            producer=f"spark-{identity.writer}-{identity.partition}{suffix}",
            batch=identity.batch,
            compression=self._options.compression,
            start=identity.partition,
            put=self._entry_writer.put,
        )


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """A batch in pieces that are not too large to be worked on at once."""
    step = batch.num_rows
    if batch.nbytes > BATCH_BYTES_MAX:
        step = max(1, batch.num_rows * BATCH_BYTES_MAX // batch.nbytes)
    for start in range(0, batch.num_rows, max(1, step)):
        yield batch.slice(start, step)


def _deliver_at(batch: pa.RecordBatch) -> Any:
    names = batch.schema.names
    if "deliver_at" in names:
        return milliseconds(batch.column("deliver_at"))
    if "deliver_after_ms" in names:
        after = batch.column("deliver_after_ms").cast(pa.int64())
        now = time.time_ns() // 1_000_000
        return pc.if_else(pc.greater(after, 0), pc.add(after, now), pa.scalar(None, pa.int64()))
    return None


def _properties(batch: pa.RecordBatch, row: int) -> dict[str, str] | None:
    return {name: text_of(value) for name, value in pairs_of(batch.slice(row, 1))[0]} or None
