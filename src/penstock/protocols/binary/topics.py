"""Requests of clients about topics: their partitions, lookups, and the topics of a namespace."""

from typing import Final

from penstock.broker.cluster import Owner
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName
from penstock.protocols.auth.proxies import Original
from penstock.wire import pulsar_pb2 as pb
from penstock.wire.frames import Frame

from .session import Session
from .topic_lists import TopicListWatch, hash_of, listed, pattern_of

WATCHES_MAX: Final = 100  # of one connection

_DOMAINS: Final = {
    pb.CommandGetTopicsOfNamespace.PERSISTENT: "persistent",
    pb.CommandGetTopicsOfNamespace.NON_PERSISTENT: "non-persistent",
    pb.CommandGetTopicsOfNamespace.ALL: None,
}


async def partitioned_metadata(
    session: Session, command: pb.CommandPartitionedTopicMetadata, frame: Frame
) -> None:
    """Answer the number of partitions, 0 for a topic without; a topic that may be created counts as there."""
    kind = pb.CommandPartitionedTopicMetadataResponse
    answer = kind(request_id=command.request_id)
    try:
        answer.partitions = await _partitions(session, command)
        answer.response = kind.Success
    except PenstockError as error:
        answer.response = kind.Failed
        answer.error = error.kind.codes.server_error  # type: ignore[assignment]
        answer.message = error.message
    session.send(answer)


async def _partitions(session: Session, command: pb.CommandPartitionedTopicMetadata) -> int:
    name, broker = TopicName.parse(command.topic), session.broker
    await broker.topics.learn(name)
    (await session.admitted.acting_for(_original(command))).may_look(name)
    if not broker.topics.exists(name) and name.partition < 0 and command.metadata_auto_creation_enabled:
        auto = broker.topics.auto(name)
        if auto.allowed and auto.partitions:
            await broker.topics.all_of(name)  # the client goes on to address the partitions one by one
        elif auto.allowed:
            return 0
    return broker.topics.partitions(name)


def _original(command: pb.CommandPartitionedTopicMetadata | pb.CommandLookupTopic) -> Original:
    """Whom a proxy that asks for many asks for now: allowed nothing that the connection is not."""
    return Original(
        command.original_principal, command.original_auth_method, command.original_auth_data.encode()
    )


async def lookup(session: Session, command: pb.CommandLookupTopic, frame: Frame) -> None:
    """Answer this broker, to be reached the way the client came: the name it knows itself by may not lead
    there from the client's network."""
    kind, context, broker = pb.CommandLookupTopicResponse, session.context, session.broker
    answer = kind(request_id=command.request_id)
    try:
        who = await session.admitted.acting_for(_original(command))
        name = TopicName.parse(command.topic)
        await broker.topics.learn(name)
        who.may_look(name)
        if not broker.topics.exists(name) and not broker.topics.auto(name).allowed:
            raise broker.topics.missing(name)
        answer.response = kind.Connect
        answer.authoritative = True
        if broker.cluster is not None:
            owner = await broker.cluster.owner(name, session.client)
            if broker.cluster.traits.administered or _serves_all(
                owner, context.pulsar_url, context.pulsar_tls_url
            ):
                _name(answer, owner)
                session.send(answer)
                return
        _name(answer, Owner(context.pulsar_url, context.pulsar_tls_url))
        answer.proxy_through_service_url = True
    except PenstockError as error:
        answer.response = kind.Failed
        answer.error = error.kind.codes.server_error  # type: ignore[assignment]
        answer.message = error.message
    session.send(answer)


def _serves_all(owner: Owner, url: str, tls_url: str) -> bool:
    """Whether clients of this process, with and without TLS, reach the owner of a topic."""
    return (
        bool(owner.url or owner.tls_url)
        and (bool(owner.url) or not url)
        and (bool(owner.tls_url) or not tls_url)
    )


def _name(answer: pb.CommandLookupTopicResponse, owner: Owner) -> None:
    """The client takes the address of its own kind; some parse both, and an empty text is not a URL."""
    if owner.url:
        answer.brokerServiceUrl = owner.url
    if owner.tls_url:
        answer.brokerServiceUrlTls = owner.tls_url


async def topics_of_namespace(session: Session, command: pb.CommandGetTopicsOfNamespace) -> None:
    """Answer the topics of a namespace; an empty list if the client knows them."""
    namespace = NamespaceName.parse(command.namespace)
    await session.broker.topics.learn_names(namespace)
    session.admitted.may_list(namespace)
    pattern = pattern_of(command.topics_pattern) if command.HasField("topics_pattern") else None
    topics = await listed(session, namespace, _DOMAINS[command.mode], pattern)
    known = hash_of(topics)
    changed = not command.topics_hash or command.topics_hash != known
    session.send(
        pb.CommandGetTopicsOfNamespaceResponse(
            request_id=command.request_id,
            topics=topics if changed else (),
            filtered=pattern is not None,
            topics_hash=known,
            changed=changed,
        )
    )


async def watch(session: Session, command: pb.CommandWatchTopicList) -> None:
    """Begin to watch; a pattern that is not matched here is refused, and the client asks again and again."""
    namespace = NamespaceName.parse(command.namespace)
    session.admitted.may_list(namespace)
    pattern = pattern_of(command.topics_pattern)
    if pattern is None:
        raise PenstockError(ErrorKind.BAD_PARAMETER, "this pattern is not matched by the broker")
    _close(session, command.watcher_id)
    if len(session.watches) >= WATCHES_MAX:
        raise PenstockError(ErrorKind.TOO_MANY_REQUESTS, f"more than {WATCHES_MAX} watched lists of topics")
    made = TopicListWatch(session, command.watcher_id, namespace, pattern)
    session.watches[command.watcher_id] = made
    await made.begin()
    if session.closed:
        made.close()
        return
    known = hash_of(made.topics)
    session.send(
        pb.CommandWatchTopicListSuccess(
            request_id=command.request_id,
            watcher_id=command.watcher_id,
            topic=() if command.topics_hash == known else made.topics,
            topics_hash=known,
        )
    )


def close_watch(session: Session, command: pb.CommandWatchTopicListClose, frame: Frame) -> None:
    """Watch no longer."""
    _close(session, command.watcher_id)
    session.send(pb.CommandSuccess(request_id=command.request_id))


def _close(session: Session, watcher_id: int) -> None:
    watched = session.watches.pop(watcher_id, None)
    if watched is not None:
        watched.close()
