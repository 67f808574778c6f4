"""What a spec says in the words of the data sources' options."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import (
    DECODE,
    SINK,
    SOURCE,
    TABLE_SINK,
    TABLE_SOURCE,
    server_options,
    storage_options,
    written_options,
)
from penstock.pipeline.zones import SESSION_ZONE, UTC

from .spec import Lookup, Sink, Source, Spec
from .times import time_ms

DELETED: Final = "_deleted"  # a sink's column: whether `delete_when` is true
RAW: Final = "_raw"  # in `include`: the bytes of a decoded message, and its key in `_key`

# Settings of `spark.sql.…` that Spark takes as it starts only.
STATIC: Final = (
    "spark.sql.extensions",
    "spark.sql.warehouse.dir",
    "spark.sql.catalogImplementation",
    "spark.sql.queryExecutionListeners",
    "spark.sql.streaming.streamingQueryListeners",
)


def of_session(key: str) -> bool:
    """Whether a setting belongs to Spark as a whole, and not to a pipeline's own session."""
    return key in STATIC or not key.startswith("spark.sql.")


def source_options(spec: Spec, name: str, source: Source) -> dict[str, str]:
    """The options of `format("penstock")` for reading a source as a stream."""
    options = server_options(spec.server) | written_options(source, SOURCE)
    options |= _start_options(spec, name, source.start)
    include = [column for column in source.include if column != RAW]
    if spec.dead_letters:  # which carry them
        include += [column for column in ("properties", "schema_version") if column not in include]
    if include:
        options["include"] = ",".join(include)
    if source.decode != "none":
        options |= written_options(source, DECODE)
        options["mode"] = "failfast" if source.on_bad_value == "fail" else "dead_letter"
        if keeps_bytes(source):
            options["keepBytes"] = "true"
    subscription = spec.name if source.subscription is None else source.subscription
    if subscription:
        options["subscription"] = subscription
    return options


def keeps_bytes(source: Source) -> bool:
    """Whether rows that were decoded can still be rejected, and must have their message then."""
    late = source.watermark is not None and source.watermark.late == "dead_letter"
    rejected = late or any(one.action == "dead_letter" for one in source.expect)
    return source.decode != "none" and (rejected or keeps_bytes_visible(source))


def keeps_bytes_visible(source: Source) -> bool:
    """Whether steps see the message: theirs may reject rows too."""
    return RAW in source.include


def _start_options(spec: Spec, name: str, start: Any) -> dict[str, str]:
    """The start of a new checkpoint."""
    if start in ("earliest", "latest"):
        return {"startingOffsets": str(start)}
    if isinstance(start, Mapping):
        option = "startingOffsets"
        if times := _listed_times(start):
            start, option = times, "startingOffsetsByTimestamp"
        for topic, partitions in start.items():
            if not isinstance(partitions, Mapping) or not all(
                str(p).isdigit() and type(offset) is int for p, offset in partitions.items()
            ):
                raise PipelineError(
                    f"{spec.file}: [sources.{name}] start: expected offsets or times by partition, like"
                    f" {{ {topic} = {{ 0 = 123 }} }} or {{ {topic} = {{ 0 = 2026-01-31T08:00:00Z }} }}"
                )
        return {option: json.dumps(start, sort_keys=True)}
    return {"startingTimestamp": str(time_ms(start))}


def future_starts(spec: Spec, now_ms: int) -> list[str]:
    """A sentence for each time in a source's `start` that is still to come."""
    found: list[str] = []
    for name, source in spec.sources.items():
        place = f"{spec.file}: [sources.{name}] start"
        if isinstance(source.start, Mapping):
            found += [
                f"{place}: {source.start[topic][p]} is in the future: partition {p} of {topic} begins with the next"
                " message that is published to it"
                for topic, times in (_listed_times(source.start) or {}).items()
                for p, ms in times.items()
                if ms > now_ms
            ]
        elif source.start not in ("earliest", "latest") and time_ms(source.start) > now_ms:
            found.append(
                f"{place}: {source.start} is in the future: the pipeline begins with the next message that is"
                " published, as with latest"
            )
    return found


def _listed_times(start: Mapping[str, Any]) -> dict[str, dict[str, int]] | None:
    """Times by partition, in ms; None if something else is listed."""
    try:
        return {
            topic: {str(p): time_ms(_time(at)) for p, at in partitions.items()}
            for topic, partitions in start.items()
        }
    except (ValueError, AttributeError):
        return None


def _time(given: Any) -> str | datetime:
    if not isinstance(given, str | datetime):
        raise ValueError(f"{given!r} is no time")
    return given


def topic_options(spec: Spec, sink: Sink) -> dict[str, str]:
    """The options of `format("penstock")` for writing to a topic."""
    return server_options(spec.server) | written_options(sink, SINK)


def lookup_options(spec: Spec, table: Lookup) -> dict[str, str]:
    """The options of `format("penstock_lake")` for reading a table."""
    return written_options(table, TABLE_SOURCE) | storage_options(spec.storage)


def table_options(spec: Spec, sink: Sink) -> dict[str, str]:
    """The options of `format("penstock_lake")` for writing to a table."""
    options = written_options(sink, TABLE_SINK) | storage_options(spec.storage)
    options["timeZone"] = spec.spark.get(SESSION_ZONE, UTC)
    if sink.delete_when:
        options["deleteColumn"] = DELETED
    return options | server_options(spec.server) if sink.archive else options
