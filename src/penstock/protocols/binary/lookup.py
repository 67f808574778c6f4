"""Which partitions a topic has, and where it is served: here (Pulsar's binary protocol)."""

from typing import TYPE_CHECKING

from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.protocols.auth.proxies import Original
from penstock.protocols.caller import Caller
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
        answer.error = error.kind.codes.server_error  # type: ignore[assignment]
        answer.message = error.message
    send(
        session.output,
        BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE, partitioned_metadata_response=answer),
    )


async def _partitions(session: "Session", command: CommandPartitionedTopicMetadata) -> int:
    name, broker = TopicName.parse(command.topic), session.broker
    (await session.admitted.acting_for(_original(command))).may_look(name)
    if not broker.topics.exists(name) and name.partition < 0 and command.metadata_auto_creation_enabled:
        auto = broker.topics.auto(name)
        if auto.allowed and auto.partitions:
            await broker.topics.all_of(name)  # the client goes on to address the partitions one by one
        elif auto.allowed:
            return 0
    return broker.topics.partitions(name)


def _original(command: CommandPartitionedTopicMetadata | CommandLookupTopic) -> Original:
    """Whom a proxy that asks for many asks for now: allowed nothing that the connection is not."""
    return Original(
        command.original_principal, command.original_auth_method, command.original_auth_data.encode()
    )


def lookup(session: "Session", command: CommandLookupTopic, frame: Frame) -> "Work | None":
    """Answer this broker, to be reached the way the client came: the name it knows itself by may not lead
    there from where the client is."""
    original = _original(command)
    if original:
        return _lookup_for(session, command, original)
    _lookup(session, command, session.admitted)
    return None


async def _lookup_for(session: "Session", command: CommandLookupTopic, original: Original) -> None:
    try:
        who = await session.admitted.acting_for(original)
    except PenstockError as error:
        _refuse(session, command, error)
        return
    _lookup(session, command, who)


def _refuse(session: "Session", command: CommandLookupTopic, error: PenstockError) -> None:
    kind = CommandLookupTopicResponse
    answer = kind(request_id=command.request_id, response=kind.Failed, message=error.message)
    answer.error = error.kind.codes.server_error  # type: ignore[assignment]
    send(session.output, BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookup_response=answer))


def _lookup(session: "Session", command: CommandLookupTopic, who: Caller) -> None:
    kind = CommandLookupTopicResponse
    answer = kind(request_id=command.request_id)
    try:
        name, broker = TopicName.parse(command.topic), session.broker
        who.may_look(name)
        if not broker.topics.exists(name) and not broker.topics.auto(name).allowed:
            raise broker.topics.missing(name)
        answer.response = kind.Connect
        # The client takes that of its own kind; some parse both, and an empty one is no URL.
        if session.context.pulsar_url:
            answer.brokerServiceUrl = session.context.pulsar_url
        if session.context.pulsar_tls_url:
            answer.brokerServiceUrlTls = session.context.pulsar_tls_url
        answer.authoritative = True
        answer.proxy_through_service_url = True
    except PenstockError as error:
        _refuse(session, command, error)
        return
    send(session.output, BaseCommand(type=BaseCommand.LOOKUP_RESPONSE, lookup_response=answer))
