"""The console's stream over all partitions of a topic."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.protocols.rest.partition import cut_value
from penstock.server.console.tail import PATH, SHOWN_MAX, VALUE_MAX
from penstock.testing.credentials import Issuer
from penstock.testing.server import Address, running


def events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    return (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def test_all_partitions_come_in_one_stream_counted_and_cut(server: Address, topic: str) -> None:
    path = "/topics/" + topic.removeprefix("persistent://")
    admin = "/admin/v2/persistent/" + topic.removeprefix("persistent://")
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
        assert client.put(f"{admin}/partitions", json=9).status_code == 204
        assert client.post(path, json={"messages": [{"value": "before"}]}).status_code == 200
        with client.stream("GET", PATH, params={"topic": topic}) as stream:
            lines = stream.iter_lines()
            assert next(lines) == ":"  # from now on
            found = events(lines)
            few = [{"value": f"{n}", "partition": n} for n in range(9)]
            assert client.post(path, json={"messages": few}).status_code == 200
            seen: list[dict[str, Any]] = []
            while len(seen) < 9:
                event = next(found)
                assert event["count"] == len(event["messages"])
                seen += event["messages"]
            assert {(each["partition"], each["value"]) for each in seen} == {(n, str(n)) for n in range(9)}

            many = [{"value": "x" * (VALUE_MAX + n % 2)} for n in range(2000)]
            assert client.post(path, json={"messages": many}).status_code == 200
            count, texts = 0, []
            while count < 2000:
                event = next(found)
                assert len(event["messages"]) <= SHOWN_MAX
                count += event["count"]
                texts += [each["value"] for each in event["messages"]]
            assert count == 2000
            assert {len(text) for text in texts} == {VALUE_MAX}


def test_who_may_consume_may_follow() -> None:
    issuer = Issuer()
    with (
        running(auth=issuer.settings(super_users=("root",))) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        admin = "/admin/v2/persistent/public/default/t"
        root, guest = issuer.headers("root"), issuer.headers("guest")
        assert client.put(admin, headers=root).status_code == 204
        params = {"topic": "t"}
        assert client.get(PATH, params=params).status_code == 401
        assert client.get(PATH, params=params, headers=guest).status_code == 403
        assert client.get(PATH, params={"topic": "nothing"}, headers=root).status_code == 404
        assert client.get(PATH, headers=root).status_code == 412  # no name
        granted = client.post(f"{admin}/permissions/guest", json=["consume"], headers=root)
        assert granted.status_code == 204
        with client.stream("GET", PATH, params=params, headers=guest) as stream:
            lines = stream.iter_lines()
            assert next(lines) == ":"
            # Without the permission the stream ends, and so does the loop.
            taken = httpx.delete(f"{server.url}{admin}/permissions/guest", headers=root, trust_env=False)
            assert taken.status_code == 204
            assert not list(events(lines))


@pytest.mark.parametrize(
    ("value", "shown", "size"),
    [
        ("abcdef", "abcd", 8),
        ({"a": [1, 2]}, '{"a"', 11),
        ('"' * 6, '"' * 4, 14),
        ("ab", "ab", None),
        (None, None, None),
    ],
)
def test_a_long_value_is_cut(value: Any, shown: Any, size: int | None) -> None:
    text = json.dumps(
        {"messageId": "CAAQAA", "value": value, "properties": {"p": "q"}}, separators=(",", ":")
    )
    cut = json.loads(cut_value(text, 4))
    assert cut.pop("valueSize", None) == size
    assert cut == {"messageId": "CAAQAA", "value": shown, "properties": {"p": "q"}}
