"""The client's small values: ids, URLs, policies, options, names."""

import pickle
import subprocess
import sys
import time

import pytest

import penstock
from penstock.client.aio.partitions import Router
from penstock.client.aio.tasks import Backoff
from penstock.client.enums import Result
from penstock.client.message import Message
from penstock.client.session.batch import Sending
from penstock.client.session.connection import parse_service_url
from penstock.model.hashing import java_string_hash
from penstock.model.message import Message as Stored


def test_message_ids_are_kept_as_bytes() -> None:
    message_id = penstock.MessageId(2, 5, 6, 1)
    kept = penstock.MessageId.deserialize(message_id.serialize(), topic="t")

    assert kept == message_id
    assert hash(kept) == hash(message_id)
    assert (kept.partition(), kept.ledger_id(), kept.entry_id(), kept.batch_index()) == (2, 5, 6, 1)
    assert kept.topic_name() == "t"
    assert str(kept) == "(5,6,2,1)"
    with pytest.raises(ValueError, match="cut short"):
        penstock.MessageId.deserialize(b"\xff")


def test_message_ids_have_an_order() -> None:
    ids = [penstock.MessageId(-1, ledger, entry) for ledger in (0, 1) for entry in (0, 1)]

    assert penstock.MessageId.earliest < ids[0]
    assert sorted([ids[2], ids[0], ids[3], ids[1]]) == ids
    assert ids[-1] < penstock.MessageId.latest
    assert ids[0] <= penstock.MessageId(-1, 0, 0, 1)


@pytest.mark.parametrize(
    ("text", "hosts", "tls"),
    [
        ("pulsar://h", [("h", 6650)], False),
        ("pulsar+ssl://h:7000/", [("h", 7000)], True),
        ("pulsar://a:1,b:2", [("a", 1), ("b", 2)], False),
        ("http://[::1]:8080", [("::1", 8080)], False),
        ("https://h", [("h", 8443)], True),
    ],
)
def test_service_urls(text: str, hosts: list[tuple[str, int]], tls: bool) -> None:
    url = parse_service_url(text)

    assert [(address.host, address.port) for address in url.addresses] == hosts
    assert url.tls is tls


@pytest.mark.parametrize("text", ["", "h:6650", "ftp://h", "pulsar://", "pulsar://h:x", "pulsar://h/path"])
def test_what_is_no_service_url(text: str) -> None:
    with pytest.raises(penstock.InvalidUrl):
        parse_service_url(text)


@pytest.mark.parametrize("text", ["pulsar://me:s3cret@h:6650", "pulsar://h,me:s3cret@h", "ftp://me:s3cret@h"])
def test_a_password_in_a_service_url_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(penstock.InvalidUrl) as caught:
        parse_service_url(text)
    assert "s3cret" not in str(caught.value)


def test_keys_go_where_their_hash_says() -> None:
    router = Router(penstock.PartitionsRoutingMode.RoundRobinDistribution, Sending())

    assert router.choose("key", 5, 0.0) == java_string_hash("key") % 5
    assert sorted(router.choose(None, 5, 0.0) for _ in range(5)) == [0, 1, 2, 3, 4]


def test_round_robin_keeps_batches_together() -> None:
    router = Router(
        penstock.PartitionsRoutingMode.RoundRobinDistribution,
        Sending(batching=True, batch_messages_max=3, batch_delay_s=1),
    )

    first = [router.choose(None, 5, 0.0) for _ in range(3)]
    assert len(set(first)) == 1
    assert router.choose(None, 5, 0.0) != first[0]
    assert router.choose(None, 5, 1.5) != router.choose(None, 5, 3.0)
    single = Router(penstock.PartitionsRoutingMode.UseSinglePartition, Sending())
    assert len({single.choose(None, 5, float(n)) for n in range(9)}) == 1


def test_waits_grow_to_a_bound() -> None:
    backoff = Backoff(1, 4)

    assert [round(backoff.next_s() / wait, 1) in (0.8, 0.9, 1.0) for wait in (1, 2, 4, 4)] == [True] * 4
    backoff.reset()
    assert backoff.next_s() <= 1


def test_requests_know_when_their_time_is_over() -> None:
    def request(published: float, timeout: str) -> Message:
        stored = Stored(
            payload=b"", properties={"REQUEST_TIMEOUT_MILLIS": timeout}, publish_time=int(published * 1000)
        )
        return Message(stored, penstock.MessageId(), "t", 0, penstock.BytesSchema())

    assert request(time.time() - 5, "1000").request_expired
    assert not request(time.time(), "60000").request_expired
    assert not request(0, "soon").request_expired
    assert request(0, "soon").is_request


def test_policies_check_their_arguments() -> None:
    with pytest.raises(penstock.InvalidConfiguration):
        penstock.ConsumerDeadLetterPolicy(0)
    with pytest.raises(penstock.InvalidConfiguration):
        penstock.ConsumerBatchReceivePolicy(-1, -1, -1)
    with pytest.raises(ValueError, match="sticky_ranges"):
        penstock.ConsumerKeySharedPolicy(penstock.KeySharedMode.Sticky)
    with pytest.raises(ValueError, match="no range"):
        penstock.ConsumerKeySharedPolicy(penstock.KeySharedMode.Sticky, sticky_ranges=[(5, 1)])


def test_errors_are_one_tree_with_the_official_codes() -> None:
    assert penstock.TimeoutError is penstock.Timeout
    assert issubclass(penstock.Timeout, TimeoutError)
    for name in Result.__members__:
        if name != "Ok":
            error = getattr(penstock, name)("why")
            assert isinstance(error, penstock.PulsarException)
            assert error.error() is Result[name]
            assert str(pickle.loads(pickle.dumps(error))) == "why"


def test_the_enumerations_are_the_official_ones() -> None:
    pulsar = pytest.importorskip("pulsar")
    for name in (
        "BatchingType",
        "CompressionType",
        "ConsumerCryptoFailureAction",
        "ConsumerType",
        "InitialPosition",
        "KeySharedMode",
        "PartitionsRoutingMode",
        "ProducerAccessMode",
        "RegexSubscriptionMode",
        "Result",
    ):
        theirs = {key: member.value for key, member in getattr(pulsar, name).__members__.items()}
        ours = {key: member.value for key, member in getattr(penstock, name).__members__.items()}
        assert ours == theirs


def test_importing_penstock_costs_little() -> None:
    code = "import sys, penstock; print(len([m for m in sys.modules if m.startswith('penstock')])); penstock.Client"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "1\n"
    with pytest.raises(AttributeError):
        penstock.Nothing  # noqa: B018
