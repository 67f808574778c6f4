"""Where replies go before Kafka, and what a reply's record says."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.settings import ClusterSettings
from penstock.engines.kafka.headers import read_headers, write_headers
from penstock.engines.kafka.replies import ReplyPartitions
from penstock.engines.shared.replies import CORRELATION_ID, REPLY_TO
from penstock.model.message import OutMessage
from penstock.model.names import DEFAULT_NAMESPACE


def addresses_of(topic: str) -> ReplyPartitions:
    """Nothing is asked of a cluster."""
    nobody: Any = SimpleNamespace(settings=ClusterSettings(url="kafka://h", replies_topic=topic))
    return ReplyPartitions(nobody, nobody, nobody, nobody, nobody)


def test_a_process_has_one_partition_of_the_topic() -> None:
    addresses = addresses_of("__replies")
    found = {addresses.own(f"{number:016x}", DEFAULT_NAMESPACE) for number in range(100)}
    assert found == {f"__replies:{number}" for number in range(16)}
    addresses.partitions = 1
    assert addresses.own("ff", DEFAULT_NAMESPACE) == "__replies:0"
    assert all(addresses.accepts(one, DEFAULT_NAMESPACE) for one in found)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "__replies",
        "__replies:",
        "__replies:-1",
        "__replies:x",
        "__replies:\u0661",
        "__replies:1000000",
        "orders:1",
        ":1",
    ],
)
def test_a_request_does_not_choose_what_the_replier_publishes_to(wrong: str) -> None:
    assert not addresses_of("__replies").accepts(wrong, DEFAULT_NAMESPACE)


def test_a_request_says_its_address_in_headers_of_their_own() -> None:
    given = {REPLY_TO: "__replies:1", CORRELATION_ID: "1-1", "penstock-x": "y"}
    headers = write_headers(OutMessage(payload=b"", properties=given), "", numbered=False)
    names = [name for name, _ in headers]
    assert names == [REPLY_TO, CORRELATION_ID, "penstock-property-penstock-x"]
    assert read_headers(headers).message.properties == given
