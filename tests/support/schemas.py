"""One topic of a running server through its endpoints, for the stories of schemas."""

import base64
import itertools
import json
from typing import Any

import httpx
from websockets.sync.client import connect

from penstock.testing.server import Address

A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "string", "default": "d"}
C = {"name": "c", "type": "string"}  # without a default: may not follow
NAMES = itertools.count()


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


def avro(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "AVRO", "schema": record(*fields)}


def b64(payload: bytes) -> str:
    return base64.b64encode(payload).decode()


class Endpoints:
    """One topic of a server, through its endpoints."""

    def __init__(
        self, server: Address, http: httpx.Client, namespace: str = "default", name: str = ""
    ) -> None:
        self.server = server
        self.http = http
        self.namespace = namespace
        self.name = name or f"schemas-{next(NAMES)}"
        self.topic = f"/topics/public/{namespace}/{self.name}"
        self.admin = f"/admin/v2/schemas/public/{namespace}/{self.name}"

    def publish(self, status: int = 200, path: str = "", **request: Any) -> Any:
        answer = self.http.post(self.topic + path, json=request)
        assert answer.status_code == status, answer.text
        return answer.json()

    def read(self, **params: Any) -> Any:
        return self.http.get(f"{self.topic}/partitions/0/messages", params=params).json()

    def values_and_versions(self) -> list[tuple[Any, int | None]]:
        """Values and versions as read."""
        return [(m["value"], m["schema_version"]) for m in self.read(include_schema=True)["messages"]]

    def versions(self) -> list[dict[str, Any]]:
        answer = self.http.get(f"{self.admin}/schemas")
        return answer.json()["getSchemaResponses"] if answer.status_code == 200 else []

    def register(self, definition: Any, kind: str = "AVRO", status: int = 200) -> Any:
        body = {"type": kind, "schema": json.dumps(definition), "properties": {}}
        answer = self.http.post(f"{self.admin}/schema", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def policy(self, name: str, value: Any) -> None:
        method = "PUT" if name == "schemaCompatibilityStrategy" else "POST"
        answer = self.http.request(method, f"/admin/v2/namespaces/public/{self.namespace}/{name}", json=value)
        assert answer.status_code == 204, answer.text

    def frames(self, *frames: dict[str, Any]) -> list[dict[str, Any]]:
        """The answers to frames of one WebSocket producer, all sent before the first is read."""
        path = f"/ws/v2/producer/persistent/public/{self.namespace}/{self.name}"
        with connect(self.server.ws + path, open_timeout=60, ping_interval=None) as socket:
            for number, frame in enumerate(frames):
                socket.send(json.dumps({**frame, "context": str(number)}))
            answers = [json.loads(socket.recv(timeout=60)) for _ in frames]
        assert [answer["context"] for answer in answers] == [str(n) for n in range(len(frames))]
        return answers

    def reader(self, count: int) -> list[dict[str, Any]]:
        """What a WebSocket reader gets from the start."""
        path = f"/ws/v2/reader/persistent/public/{self.namespace}/{self.name}?messageId=earliest"
        found = []
        with connect(self.server.ws + path, open_timeout=60, ping_interval=None) as socket:
            for _ in range(count):
                found.append(json.loads(socket.recv(timeout=60)))
                socket.send(json.dumps({"messageId": found[-1]["messageId"]}))
        return found


def tell_values_without_a_schema(endpoints: Endpoints) -> None:
    """A topic that has no schema takes any JSON, and everybody gets JSON back. A schema whose fields may all be missing
    may follow before every engine."""
    first = endpoints.publish(messages=[{"value": {"a": 1}, "key": "k"}])["schema_version"]
    assert first is not None
    endpoints.publish(messages=[{"value": [1, None]}, {"value": "text"}, {"value": 5}])
    assert endpoints.publish(schema_type="json", messages=[{"value": True}])["schema_version"] == first
    expected: list[Any] = [{"a": 1}, [1, None], "text", 5, True]
    assert endpoints.values_and_versions() == [(value, first) for value in expected]
    frames = endpoints.reader(5)
    assert [json.loads(base64.b64decode(frame["payload"])) for frame in frames] == expected
    assert frames[0]["key"] == "k"
    (schema,) = endpoints.versions()
    assert (schema["type"], json.loads(schema["data"])["fields"]) == ("JSON", [])
