"""Which logs a query reads, asked of the server when the query is planned."""

from collections.abc import Sequence

from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError

from .offsets import Log
from .options import Options, Pattern


def find_logs(client: HttpClient, options: Options, times: Sequence[int]) -> list[Log]:
    """The partitions of the query's topics as they are now, with the offsets of `times`."""
    logs: list[Log] = []
    for topic, wanted in _topics(client, options).items():
        try:
            count = client.partitions(topic)
        except PenstockError as error:
            if error.kind is ErrorKind.TOPIC_NOT_FOUND:
                raise PipelineError(f"topic {topic} does not exist", error.kind) from None
            raise
        there = range(max(count, 1))
        for partition in there if wanted is None else wanted:
            if partition not in there:
                raise PipelineError(
                    f"topic {topic} has no partition {partition}", ErrorKind.PARTITION_NOT_FOUND
                )
            logs.append(_log(client, topic, partition, partitioned=count > 0, times=times))
    return logs


def _topics(client: HttpClient, options: Options) -> dict[TopicName, tuple[int, ...] | None]:
    if options.pattern is None:
        return options.topics
    return dict.fromkeys(matching(client, options.pattern), None)


def matching(client: HttpClient, pattern: Pattern) -> list[TopicName]:
    """The topics that a pattern matches now; there may be none yet."""
    names = {TopicName.parse(name).base for name in client.topics(pattern.namespace)}
    return sorted(name for name in names if pattern.matches(name))


def _log(
    client: HttpClient, topic: TopicName, partition: int, *, partitioned: bool, times: Sequence[int]
) -> Log:
    now = client.offsets(topic, partition)
    at: dict[int, int] = {}
    for time in times:
        later = client.offsets(topic, partition, time)
        # The log goes on growing between the calls; the query ends where the first one saw its end.
        at[time] = now.latest if later.at is None else min(later.at, now.latest)
    return Log(str(topic), partition, partitioned, now.ledger, now.earliest, now.latest, at)
