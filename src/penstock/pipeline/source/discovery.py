"""Which logs a query reads, asked of the server in one call."""

from collections.abc import Sequence

from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.logs import LogState, Look, look

from .offsets import Log
from .options import Options


def find_logs(client: HttpClient, options: Options, times: Sequence[int] = ()) -> list[Log]:
    """The partitions of the query's topics as they are now, with the offsets of `times`.

    Raises PipelineError for a topic or partition that is named and not there.
    """
    found = ask(client, options, times=times)
    check_there(options, found)
    return logs_of(options, found.logs or [], times)


def ask(
    client: HttpClient,
    options: Options,
    *,
    times: Sequence[int] = (),
    seen: str | None = None,
    wait_ms: int = 0,
) -> Look:
    """The server's answer, of all partitions of the query's topics."""
    pattern = options.pattern
    return look(
        client,
        list(options.topics),
        [] if pattern is None else [(pattern.namespace, pattern.local)],
        times=times,
        seen=seen,
        wait_ms=wait_ms,
    )


def check_there(options: Options, found: Look) -> None:
    """Raise PipelineError for a topic or partition that is named and not there."""
    if found.missing:
        raise PipelineError(f"topic {found.missing[0]} does not exist", ErrorKind.TOPIC_NOT_FOUND)
    there = {(state.topic, state.partition) for state in found.logs or []}
    for topic, wanted in options.topics.items():
        for partition in wanted or ():
            if (str(topic), partition) not in there:
                raise PipelineError(
                    f"topic {topic} has no partition {partition}", ErrorKind.PARTITION_NOT_FOUND
                )


def logs_of(options: Options, states: Sequence[LogState], times: Sequence[int] = ()) -> list[Log]:
    """Those of the logs that the query wants."""
    return [
        Log(
            state.topic,
            state.partition,
            state.partitioned,
            state.ledger,
            state.earliest,
            state.latest,
            dict(zip(times, state.at, strict=True)),
            state.bytes,
        )
        for state in states
        if options.wants(TopicName.parse(state.topic), state.partition)
    ]
