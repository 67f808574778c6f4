"""Which partitions a topic has, and where it is served: here (reference/pulsar 5.3)."""

from typing import TYPE_CHECKING

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.wire.frames import Frame
from penstock.wire.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
)

from .output import send

if TYPE_CHECKING:
    from .session import Session, Work


def partitioned_metadata(
    session: "Session", command: CommandPartitionedTopicMetadata, frame: Frame
) -> "Work":
    """Answer the number of partitions, 0 for a topic without; a topic that may be created counts as there."""
    return _metadata(session, command)


async def _metadata(session: "Session", command: CommandPartitionedTopicMetadata) -> None:
    kind = CommandPartitionedTopicMetadataResponse
    answer = kind(request_id=command.request_id)
    try:
        answer.partitions = await _partitions(session, command)
        answer.response = kind.Success
    except PenstockError as error:
        answer.response = kind.Failed
        answer.error = error.kind.face.server_error  # type: ignore[assignment]
        answer.message = error.message
    send(
        session.output,
        BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitioned_metadata_response=answer),
    )


async def _partitions(session: "Session", command: CommandPartitionedTopicMetadata) -> int:
    name, broker = TopicName.parse(command.topic), session.broker
    session.admitted.may_look(name)
    if not broker.topics.exists(name) and name.partition < 0 and command.metadata_auto_creation_enabled:
        if broker.settings.auto_create_topics and broker.settings.auto_create_partitions:
            await broker.topics.all_of(name)  # the client goes on to address the partitions one by one
        elif broker.settings.auto_create_topics:
            return 0
    return broker.topics.partitions(name)


def lookup(session: "Session", command: CommandLookupTopic, frame: Frame) -> None:
    """Answer this broker, to be reached the way the client came: the name it knows itself by may not lead
    there from where the client is."""
    kind = CommandLookupTopicResponse
    answer = kind(request_id=command.request_id)
    try:
        name, broker = TopicName.parse(command.topic), session.broker
        session.admitted.may_look(name)
        missing = name.partition >= 0 or not broker.settings.auto_create_topics
        if missing and not broker.topics.exists(name):
            raise PenstockError(ErrorKind.TOPIC_NOT_FOUND, f"topic {name} does not exist")
        answer.response = kind.Connect
        answer.brokerServiceUrl = session.gate.pulsar_url
        answer.brokerServiceUrlTls = session.gate.pulsar_tls_url  # the client takes that of its own kind
        answer.authoritative = True
        answer.proxy_through_service_url = True
    except PenstockError as error:
        answer.response = kind.Failed
        answer.error = error.kind.face.server_error  # type: ignore[assignment]
        answer.message = error.message
    send(session.output, BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookup_response=answer))
