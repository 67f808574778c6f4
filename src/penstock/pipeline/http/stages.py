"""Staged publishing over HTTP, for bulk senders of entries. On the standard library alone: see `entries`.

Calls are repeated while the server cannot be reached or says that a retry can help: each may be, as the server
knows a part, a commit and (with `deduplicate`) an entry that it has.
"""

import json
import logging
import time
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from penstock.client.access import Access
from penstock.client.paths import quoted
from penstock.model.names import TopicName
from penstock.model.partitioning import Partitioner

from .calls import JSON, Calls
from .retry import retrying

log = logging.getLogger(__name__)

MEDIA: Final = "application/vnd.penstock.sections"
TIMEOUT_S: Final = 60.0  # without a byte from the server
COMMIT_WAIT_S: Final = 20  # for the answer to a commit, before its progress is asked for
POLL_S: Final = 0.2  # between two looks at it, doubled each time
POLL_MAX_S: Final = 2.0
LOST_S: Final = 60.0  # until a process that says nothing of its commit is given up
RETRY_S: Final = 120.0  # how long a server may be away: a restart, with a store to be recovered


class OpenedTopic(NamedTuple):
    """A topic's partitions (0: not partitioned), how keys choose one, and the bytes that precede a key when it is hashed."""

    partitions: int
    partitioner: Partitioner = Partitioner.JAVA
    key_prefix: bytes = b""


class Opened(NamedTuple):
    """Topics, the size limits of parts and messages, and whether parts can be staged."""

    topics: dict[TopicName, OpenedTopic]
    part_bytes_max: int
    message_bytes_max: int
    staged: bool = True


class StageCount(NamedTuple):
    """A stage as its writer counted it."""

    stage: str
    parts: int
    messages: int
    size_bytes: int


def _opened(answer: Mapping[str, Any]) -> OpenedTopic:
    """A topic of an answer; older servers do not name the partitioner."""
    partitioner = Partitioner(answer.get("partitioner", Partitioner.JAVA.value))
    return OpenedTopic(answer["partitions"], partitioner, b64decode(answer.get("key_prefix", "")))


class Stages(Calls):
    """Calls of one writer at a time, over one connection; use as a context manager."""

    def __init__(
        self,
        access: Access,
        *,
        timeout_s: float = TIMEOUT_S,
        retry_s: float = RETRY_S,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(access, timeout_s)
        self._retry_s = retry_s
        self._sleep = sleep
        self._clock = clock

    def open_topics(
        self, topics: Sequence[TopicName], key_versions: Mapping[TopicName, int] | None = None
    ) -> Opened:
        """Look up the topics, creating them if the server creates topics. Raises TOPIC_NOT_FOUND, FORBIDDEN.

        `key_versions`: by topic, the schema version that its keys are encoded with.
        """
        body: dict[str, Any] = {"topics": [str(topic) for topic in topics]}
        if key_versions:
            body["key_versions"] = {str(topic): version for topic, version in key_versions.items()}
        answer = self._call("POST", "/stages", json.dumps(body).encode(), JSON)
        return Opened(
            {TopicName.parse(each["topic"]): _opened(each) for each in answer["topics"]},
            answer["max_part_bytes"],
            answer["max_message_bytes"],
            answer.get("staged", True),
        )

    def stage(self, writer: str, batch: int, stage: str, part: int, body: bytes) -> None:
        """Stage one part (`wire.bulk` makes the body). Raises FORBIDDEN for another role's writer."""
        self._call("PUT", f"{_batch_path(writer, batch)}/{quoted(stage)}/{part}", body, MEDIA)

    def commit(
        self,
        writer: str,
        batch: int,
        stages: Sequence[StageCount],
        topics: Sequence[TopicName] = (),
        *,
        keep: bool = True,
    ) -> Any:
        """Commit a batch to `topics`; once, however often. Returns the answer.

        Raises BATCH_CONFLICT for a batch below the writer's last, and for the last one with other counts or if
        a topic that it was committed to was deleted since. While the server works on it, it is asked for its progress.
        """
        body = {
            "topics": [str(topic) for topic in topics],
            "stages": [each._asdict() for each in stages],
            "keep": keep,
        }
        path, content = f"{_batch_path(writer, batch)}/commit", json.dumps(body).encode()
        while True:  # as long as a server works on it
            answer = self._call("POST", path, content, JSON, f"respond-async, wait={COMMIT_WAIT_S}")
            if "state" not in answer:
                return answer
            messages = sum(each.messages for each in stages)
            log.info("writer %s, batch %d: its %d messages are being committed", writer, batch, messages)
            self._follow(path, answer["process"])

    def _follow(self, path: str, process: str) -> None:
        """Wait while a server's process commits a batch. Another process of the service may answer: it knows only that the batch
        is committed."""
        heard, wait_s = self._clock(), POLL_S
        while self._clock() - heard < LOST_S:
            self._sleep(wait_s)
            wait_s = min(2 * wait_s, POLL_MAX_S)
            answer = self._call("GET", path)
            if answer["state"] == "committed":
                return
            if answer["process"] == process:
                if answer["state"] != "committing":
                    return
                heard = self._clock()

    def abort(self, writer: str, batch: int) -> int:
        """Drop the stages of a batch; returns their number. Raises STAGE_CONFLICT if nothing is, and the
        batch is committed."""
        return int(self._call("DELETE", _batch_path(writer, batch))["dropped"])

    def drop(self, writer: str, batch: int, stage: str) -> None:
        """Drop one stage. Raises STAGE_CONFLICT if it is not there, and its batch is committed."""
        self._call("DELETE", f"{_batch_path(writer, batch)}/{quoted(stage)}")

    def status(self, writer: str) -> Any:
        """A writer's last commits, and what it has staged."""
        return self._call("GET", f"/stages/{quoted(writer)}")

    def forget(self, writer: str, topics: Sequence[TopicName] | None = None) -> None:
        """Forget a writer, or its last commit to `topics`. Raises NOT_FOUND, STAGE_CONFLICT."""
        query = (
            "" if topics is None else f"?{urlencode([('topics', str(topic)) for topic in topics or ('',)])}"
        )
        self._call("DELETE", f"/stages/{quoted(writer)}{query}")

    def publish(self, body: bytes, *, deduplicate: bool) -> Any:
        """Publish entries at once. With `deduplicate`, those whose ids their producer has stored are passed over."""
        return self._call("POST", f"/entries?deduplicate={str(deduplicate).lower()}", body, MEDIA)

    def _call(
        self, method: str, path: str, body: bytes | None = None, kind: str = "", prefer: str = ""
    ) -> Any:
        return retrying(lambda: self.send(method, path, body, kind, prefer), self._retry_s)


def _batch_path(writer: str, batch: int) -> str:
    return f"/stages/{quoted(writer)}/{batch}"
