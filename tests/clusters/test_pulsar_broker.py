"""The broker that the other tests stand before: it is the real one, and numbers its entries."""

from tests.support.pulsar_broker import PulsarCluster

from penstock import Client


def test_a_message_goes_through_a_real_pulsar_with_our_client(
    pulsar_cluster: PulsarCluster, pulsar_namespace: str
) -> None:
    topic = f"persistent://{pulsar_namespace}/orders"
    with Client(pulsar_cluster.service_url) as client:
        consumer = client.subscribe(topic, "s")
        sent = client.create_producer(topic).send(b"one")
        message = consumer.receive(30_000)
        assert (message.data(), message.message_id().entry_id()) == (b"one", sent.entry_id())
        consumer.acknowledge(message)


def test_entries_are_numbered_and_clients_see_the_numbers(pulsar_cluster: PulsarCluster) -> None:
    settings = pulsar_cluster.admin("GET", "brokers/configuration/runtime").json()
    assert "AppendIndexMetadataInterceptor" in settings["brokerEntryMetadataInterceptors"]
    assert settings["exposingBrokerEntryMetadataToClientEnabled"] == "true"
