"""What tests ask of a server in one line: topics, messages, subscriptions, schemas, replies. Over HTTP, blocking.

A topic is named as clients name it: `orders`, `acme/shop/orders` or `persistent://acme/shop/orders`.
"""

import contextlib
import http.client
import itertools
import os
import ssl
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from penstock.client.paths import quoted
from penstock.model.names import TopicName

WITHIN_S: Final = 10.0  # a wait of a test; it fails then, and says what it waited for
CALL_S: Final = 60.0  # a busy machine may take long
POLL_S: Final = 0.01
FETCH_MS: Final = 50  # a replier looks this often whether it is to end

_NAMES: Final = itertools.count()


class RefusedError(Exception):
    """The server refused a call: its `status`, PIP-64's `code`, and what it said."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(f"{status}/{code}: {message}")
        self.status = status
        self.code = code


class Calls:
    """Calls to the server at `url`. With `token` as a role of a server with authentication."""

    url: str
    token: str = ""

    # -- topics

    def create_topic(self, topic: str = "", partitions: int = 0) -> str:
        """Create a topic, with so many partitions or without; its name, a new one if not given."""
        topic = topic or f"topic-{os.getpid()}-{next(_NAMES)}"
        path = f"/admin/v2/persistent/{_local(topic)}"
        if partitions:
            self.call("PUT", f"{path}/partitions", partitions)
        else:
            self.call("PUT", path)
        return topic

    def create_namespace(self, namespace: str) -> None:
        """Create `tenant/namespace`, and its tenant if missing."""
        tenant = namespace.partition("/")[0]
        with contextlib.suppress(RefusedError):
            self.call("PUT", f"/admin/v2/tenants/{tenant}", {})
        self.call("PUT", f"/admin/v2/namespaces/{namespace}", {})

    # -- messages

    def publish(self, topic: str, *values: Any, **message: Any) -> list[str]:
        """Publish values, bytes as they are and anything else as JSON; returns their message ids.

        `message` has further fields of REST, for each of them: `key`, `properties`, `deliverAfterMs`, …
        """
        messages = [_message(value, message) for value in values]
        answer = self.call("POST", _path(topic), {"messages": messages})
        for slot in answer["messageIds"]:
            if slot["messageId"] is None:
                raise RefusedError(200, slot["error_code"], slot["error"])
        return [slot["messageId"] for slot in answer["messageIds"]]

    def messages(self, topic: str, *, encoding: str = "json") -> list[dict[str, Any]]:
        """Every message of a topic, as REST shows it: `value`, `key`, `properties`, …; partition by partition. Empty where
        the topic is not there."""
        found: list[dict[str, Any]] = []
        try:
            partitions = self.call("GET", f"/admin/v2/persistent/{_local(topic)}/partitions")["partitions"]
            for partition in range(partitions or 1):
                found += self._partition(topic, partition, encoding)
        except RefusedError as error:
            if error.status != 404:
                raise
        return found

    def _partition(self, topic: str, partition: int, encoding: str) -> Iterator[dict[str, Any]]:
        after = "earliest"
        while True:
            query = {"message_id": after, "encoding": encoding}
            page = self.call("GET", f"{_path(topic)}/partitions/{partition}/messages", query=query)
            if not page["messages"]:
                return
            yield from page["messages"]
            after = page["next_message_id"]

    def values(self, topic: str) -> list[Any]:
        """The values of every message of a topic; of payloads without a schema in base64."""
        return [message["value"] for message in self.messages(topic)]

    def wait_for_messages(self, topic: str, count: int, within_s: float = WITHIN_S) -> list[dict[str, Any]]:
        """Every message of a topic, once there are so many; AssertionError if they do not come in time."""
        found: list[dict[str, Any]] = []

        def enough() -> bool:
            found[:] = self.messages(topic)
            return len(found) >= count

        _wait(enough, within_s, lambda: f"{topic} has {len(found)} messages, not {count}")
        return found

    # -- subscriptions

    def create_subscription(self, topic: str, subscription: str, position: str = "earliest") -> None:
        """Create a subscription at the earliest or latest message, or after a message id."""
        ready: Any = position if position in ("earliest", "latest") else {"messageId": position}
        path = f"/admin/v2/persistent/{_local(topic)}/subscription/{quoted(subscription)}"
        self.call("PUT", path, ready)

    def backlog(self, topic: str, subscription: str) -> int:
        """How many messages of a topic a subscription has not acknowledged."""
        cursor = self.call("GET", f"{_path(topic)}/subscription/{quoted(subscription)}/cursor")
        return int(cursor["cursor"]["backlog"])

    def wait_until_acked(self, topic: str, subscription: str, within_s: float = WITHIN_S) -> None:
        """Wait until everything in a topic is acknowledged by a subscription; AssertionError if it is not in time.

        In a test on an event loop: `await asyncio.to_thread(server.wait_until_acked, …)`.
        """
        left = "is not there"

        def acked() -> bool:
            nonlocal left
            try:
                backlog = self.backlog(topic, subscription)
            except RefusedError as error:
                if error.status != 404:
                    raise
                return False
            left = f"has {backlog} messages that are not acknowledged"
            return backlog == 0

        _wait(acked, within_s, lambda: f"subscription {subscription} of {topic} {left}")

    # -- schemas

    def register_schema(self, topic: str, definition: Any, kind: str = "AVRO") -> int:
        """Register a schema, its definition as JSON; its version."""
        body = {"type": kind, "schema": msgspec.json.encode(definition).decode(), "properties": {}}
        answer = self.call("POST", f"/admin/v2/schemas/{_local(topic)}/schema", body)
        return int(answer["version"]["version"])

    def schema(self, topic: str) -> dict[str, Any] | None:
        """A topic's newest schema: `type`, `version`, `data`, …; None if it has none."""
        try:
            found: dict[str, Any] = self.call("GET", f"/admin/v2/schemas/{_local(topic)}/schema")
        except RefusedError as error:
            if error.status != 404:
                raise
            return None
        return found

    # -- request and reply

    def request(self, topic: str, value: Any, timeout_ms: int = 10_000) -> bytes:
        """Publish a request and wait for its reply (PIP-371); RefusedError with status 504 without one."""
        body = _message(value, {})
        answer = self.call("POST", f"{_path(topic)}/request", body, {"timeout": timeout_ms})
        return b64decode(answer["replyContent"])

    @contextlib.contextmanager
    def replying(
        self, topic: str, answer: Callable[[Any], str | bytes], subscription: str = "replies"
    ) -> Iterator[None]:
        """Within the block, reply to each message of a topic with what `answer` makes of its value; to one that it raises
        at, with the error's text as an error."""
        path = f"{_path(topic)}/subscription/{quoted(subscription)}"
        consumer = {"subscription_type": "Shared", "initial_position": "earliest"}
        ended = threading.Event()

        def open_consumer() -> str:
            return urlsplit(str(self.call("POST", path, consumer)["base_uri"])).path

        def work(fetching: str) -> None:
            while not ended.is_set():
                try:
                    fetched = self.call("GET", f"{fetching}/messages", query={"timeout": FETCH_MS})
                except RefusedError as error:
                    if error.status != 404:
                        raise
                    fetching = open_consumer()  # it expired: the server's clock was put forward
                    continue
                replies = [_reply(message, answer) for message in fetched["messages"]]
                if replies:
                    self.call("POST", f"{path}/cursor", {"messageIds": replies})
            with contextlib.suppress(RefusedError):
                self.call("DELETE", fetching)

        thread = threading.Thread(
            target=work, args=(open_consumer(),), name=f"replies of {topic}", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(CALL_S)

    # -- anything else

    def call(
        self, method: str, path: str, body: Any = None, query: Mapping[str, object] | None = None
    ) -> Any:
        """Any other call over HTTP, JSON in and out; raises RefusedError."""
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        connection = _connection(self.url)
        try:
            content = None if body is None else msgspec.json.encode(body)
            connection.request(method, target, content, headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise _refused(answer.status, text)
        return msgspec.json.decode(text) if text else None


def _connection(url: str) -> http.client.HTTPConnection:
    where = urlsplit(url)
    assert where.hostname is not None
    if where.scheme == "http":
        return http.client.HTTPConnection(where.hostname, where.port, timeout=CALL_S)
    trusting = ssl.create_default_context()
    trusting.check_hostname = False  # the certificate is the test's own
    trusting.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(where.hostname, where.port, timeout=CALL_S, context=trusting)


def _refused(status: int, text: bytes) -> RefusedError:
    try:
        said = msgspec.json.decode(text)
        return RefusedError(status, said["error_code"], said["message"])
    except (msgspec.DecodeError, TypeError, KeyError):
        return RefusedError(status, 0, text.decode(errors="replace"))


def _local(topic: str) -> str:
    """`tenant/namespace/topic`, for a path."""
    name = TopicName.parse(topic)
    return "/".join(quote(part, safe="") for part in (name.tenant, name.namespace, name.local))


def _path(topic: str) -> str:
    return f"/topics/{_local(topic)}"


def _message(value: Any, further: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(value, bytes):
        return {**further, "value": b64encode(value).decode(), "schema_type": "bytes"}
    return {**further, "value": value}


def _reply(message: Mapping[str, Any], answer: Callable[[Any], str | bytes]) -> dict[str, Any]:
    try:
        content, failed = answer(message["value"]), False
    except Exception as error:  # a test's own: passed on to the requester
        content, failed = f"{type(error).__name__}: {error}", True
    raw = content.encode() if isinstance(content, str) else content
    return {
        "messageId": message["messageId"],
        "replyContent": b64encode(raw).decode(),
        "isErrorResult": failed,
    }


def _wait(reached: Callable[[], bool], within_s: float, said: Callable[[], str]) -> None:
    until = time.monotonic() + within_s
    while not reached():
        if time.monotonic() > until:
            raise AssertionError(f"after {within_s:g} s, {said()}")
        time.sleep(POLL_S)
