"""The protocol's description: what is compiled of it, and what that must keep."""

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc  # type: ignore[import-untyped]

from penstock.wire import pulsar_pb2 as pb

SOURCES = Path(pb.__file__).parents[2]


def test_what_is_compiled_is_what_the_description_says(tmp_path: Path) -> None:
    made = tmp_path / "pulsar.binpb"
    source = SOURCES / "penstock" / "wire" / "pulsar.proto"
    assert protoc.main(["", f"--proto_path={SOURCES}", f"--descriptor_set_out={made}", str(source)]) == 0
    assert FileDescriptorSet.FromString(made.read_bytes()) == FileDescriptorSet.FromString(
        source.with_suffix(".binpb").read_bytes()
    ), "`make proto` compiles it"


def test_each_commands_field_has_its_types_number_and_name() -> None:
    fields = {field.number: field.name for field in pb.BaseCommand.DESCRIPTOR.fields if field.name != "type"}
    types = {number: name.lower() for name, number in pb.BaseCommand.Type.items()}
    assert fields == types
    assert pb.BaseCommand.DESCRIPTOR.fields_by_name["type"].number == 1


@pytest.mark.parametrize(
    ("message", "numbers"),
    [
        ("MessageIdData", "ledgerId=1 entryId=2 partition=3 batch_index=4 ack_set=5 batch_size=6"),
        (
            "MessageMetadata",
            "producer_name=1 sequence_id=2 publish_time=3 properties=4 replicated_from=5 partition_key=6 "
            "replicate_to=7 compression=8 uncompressed_size=9 num_messages_in_batch=11 event_time=12 "
            "encryption_keys=13 schema_version=16 partition_key_b64_encoded=17 ordering_key=18 "
            "deliver_at_time=19 marker_type=20 txnid_least_bits=22 highest_sequence_id=24 null_value=25 "
            "uuid=26 num_chunks_from_msg=27 total_chunk_msg_size=28 chunk_id=29 null_partition_key=30",
        ),
        (
            "SingleMessageMetadata",
            "properties=1 partition_key=2 payload_size=3 compacted_out=4 event_time=5 "
            "partition_key_b64_encoded=6 ordering_key=7 sequence_id=8 null_value=9 null_partition_key=10",
        ),
        ("Schema", "name=1 schema_data=3 type=4 properties=5"),
        (
            "CommandConnect",
            "client_version=1 auth_data=3 protocol_version=4 auth_method_name=5 feature_flags=10",
        ),
        ("CommandAck", "consumer_id=1 ack_type=2 message_id=3 validation_error=4 request_id=8"),
        ("CommandAck", "reply_to_client=9 reply_payload=10 reply_is_error=11"),
        (
            "CommandRequestReceipt",
            "reply_to_producer_id=1 request_message_id=2 reply_payload=3 is_error=4 sequence_id=5",
        ),
        (
            "FeatureFlags",
            "supports_broker_entry_metadata=2 supports_topic_watchers=4 supports_request_reply=32",
        ),
        ("CommandConsumerStats", "request_id=1 consumer_id=4"),
        ("KeySharedMeta", "keySharedMode=1 hashRanges=3 allowOutOfOrderDelivery=4"),
    ],
)
def test_field_numbers(message: str, numbers: str) -> None:
    fields = getattr(pb, message).DESCRIPTOR.fields_by_name
    for pair in numbers.split():
        name, _, number = pair.partition("=")
        assert fields[name].number == int(number), name


def test_the_package_is_ours() -> None:
    assert pb.DESCRIPTOR.package == "penstock.pulsar"


def test_a_command_as_the_official_client_writes_it() -> None:
    # CONNECT of pulsar-client: type 2, then field 2.
    command = pb.BaseCommand.FromString(bytes.fromhex("0802120912034153462014") + b"\x2a\x00")
    assert command.type == pb.BaseCommand.CONNECT
    ping = pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing())
    assert ping.SerializeToString() == bytes.fromhex("0812920100")


def test_a_reply_on_the_wire() -> None:
    ack = pb.CommandAck(
        consumer_id=1, ack_type=pb.CommandAck.Individual, reply_payload=b"yes", reply_is_error=True
    )
    assert ack.SerializeToString() == bytes.fromhex("08011000 5203796573 5801".replace(" ", ""))


def test_it_lives_beside_the_official_client() -> None:
    code = "import pulsar, penstock.wire.pulsar_pb2"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
