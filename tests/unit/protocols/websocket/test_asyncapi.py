import json
import re
from typing import Any

from penstock.protocols.websocket.asyncapi import asyncapi


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [r for value in node.values() for r in references(value)]
    if isinstance(node, list):
        return [r for value in node for r in references(value)]
    return []


def test_every_reference_resolves() -> None:
    document = json.loads(json.dumps(asyncapi("1.2.3")))
    assert document["info"]["version"] == "1.2.3"
    found = references(document)
    assert len(found) > 20
    for reference in found:
        node = document
        for part in reference.removeprefix("#/").split("/"):
            node = node[part]


def test_every_endpoint_and_field_is_there() -> None:
    document = asyncapi("1")
    addresses = {channel["address"] for channel in document["channels"].values()}
    assert {re.sub(r"\{.*", "", a) for a in addresses} == {
        "/ws/v2/producer/",
        "/ws/v2/consumer/",
        "/ws/v2/reader/",
        "/ws/v3/consumer/",
    }
    fields = document["components"]["schemas"]["ConsumerMessage"]["properties"]
    assert {"messageId", "payload", "publishTime", "redeliveryCount", "eventTime", "topic"} <= set(fields)
