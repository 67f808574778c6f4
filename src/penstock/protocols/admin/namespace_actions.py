"""What is done to all topics of a namespace at once; and its properties. Its one bundle is the namespace itself."""

import msgspec

from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.answers import NO_CONTENT, Answer

from .call import Call
from .namespaces import NAMESPACE
from .server import BUNDLES
from .table import BUNDLE, Table
from .topics import logs_of

table = Table()


@table.on("GET", f"{NAMESPACE}/bundles", fixed=True)
async def bundles(call: Call) -> Answer:
    """The bundles of a namespace: one."""
    call.broker.namespaces.policies(call.namespace)
    return Answer(body=BUNDLES)


@table.on("GET", "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle", text=True, fixed=True)
async def bundle_of(call: Call) -> Answer:
    """The bundle that a topic is in: the namespace's only one."""
    call.broker.topics.partitions(call.seen_topic)
    return Answer(raw=BUNDLE.encode())


@table.on("GET", "/admin/v2/{domain}/{tenant}/{namespace}/{bundle}", answer=list[str])
async def topics_in_bundle(call: Call) -> Answer:
    """List the topics of one domain in a bundle: all of the namespace's."""
    _check_bundle(call)
    return Answer(body=logs_of(call, call.path["domain"]))


def _check_bundle(call: Call) -> None:
    if call.path.get("bundle", BUNDLE) != BUNDLE:
        raise PenstockError(ErrorKind.NOT_FOUND, f"a namespace has the bundle {BUNDLE} only")


async def _logs(call: Call) -> list[Topic]:
    """Every log of the namespace in the path, or in its bundle."""
    _check_bundle(call)
    namespace, topics = call.namespace, call.broker.topics
    call.broker.namespaces.policies(namespace)
    return [log for name in topics.names(namespace) for log in await topics.all_of(name, create=False)]


@table.on("PUT", f"{NAMESPACE}/unload", f"{NAMESPACE}/{{bundle}}/unload")
async def unload(call: Call) -> Answer:
    """Disconnect the producers and consumers of every topic; they come back by themselves."""
    _check_bundle(call)
    namespace = call.namespace
    call.broker.namespaces.policies(namespace)
    for log in call.broker.topics.open_topics:  # of the others nobody has anything
        if log.name.namespace_name == namespace and not log.deleted:
            await call.broker.administration.unload_topic(log.name)
    return NO_CONTENT


@table.on(
    "POST",
    f"{NAMESPACE}/clearBacklog",
    f"{NAMESPACE}/clearBacklog/{{subscription}}",
    f"{NAMESPACE}/{{bundle}}/clearBacklog",
    f"{NAMESPACE}/{{bundle}}/clearBacklog/{{subscription}}",
)
async def clear_backlog(call: Call) -> Answer:
    """Count the whole backlog of every topic as acknowledged, on one subscription or on all."""
    wanted = call.path.get("subscription")
    for log in await _logs(call):
        for subscription in list(log.subscriptions.values()):
            if wanted in (None, subscription.name):
                subscription.skip(log.next_offset)
                await subscription.flush()
    return NO_CONTENT


@table.on(
    "POST",
    f"{NAMESPACE}/unsubscribe/{{subscription}}",
    f"{NAMESPACE}/{{bundle}}/unsubscribe/{{subscription}}",
)
async def unsubscribe(call: Call) -> Answer:
    """Delete a subscription of every topic; 409 while one of them has consumers of it."""
    name = call.path["subscription"]
    logs = [log for log in await _logs(call) if name in log.subscriptions]
    busy = next((log for log in logs if log.subscriptions[name].consumers), None)
    if busy is not None:
        raise PenstockError(
            ErrorKind.SUBSCRIPTION_BUSY, f"subscription {name} of {busy.name} has active connected consumers"
        )
    for log in logs:
        await call.broker.subscriptions.delete(log.name, name)
    return NO_CONTENT


# -- properties


@table.on("GET", f"{NAMESPACE}/properties", answer=dict[str, str])
async def properties(call: Call) -> Answer:
    """The properties of a namespace."""
    return Answer(body=_properties(call))


def _properties(call: Call) -> dict[str, str]:
    return call.broker.namespaces.policies(call.namespace).properties


async def _set(call: Call, properties: dict[str, str]) -> None:
    await call.broker.namespaces.change(
        call.namespace, lambda now: msgspec.structs.replace(now, properties=call.bounded(properties))
    )


@table.on("PUT", f"{NAMESPACE}/properties", body=dict[str, str])
async def set_properties(call: Call) -> Answer:
    """Set these properties of a namespace; the others stay."""
    await _set(call, {**_properties(call), **call.body(dict[str, str])})
    return NO_CONTENT


@table.on("DELETE", f"{NAMESPACE}/properties")
async def clear_properties(call: Call) -> Answer:
    """Remove all properties of a namespace."""
    await _set(call, {})
    return NO_CONTENT


@table.on("GET", f"{NAMESPACE}/property/{{key}}", text=True)
async def get_property(call: Call) -> Answer:
    """The value of a property, as text; nothing where there is none."""
    return Answer(raw=_properties(call).get(call.path["key"], "").encode())


@table.on("PUT", f"{NAMESPACE}/property/{{key}}/{{value}}")
async def put_property(call: Call) -> Answer:
    """Set a property of a namespace."""
    await _set(call, {**_properties(call), call.path["key"]: call.path["value"]})
    return NO_CONTENT


@table.on("DELETE", f"{NAMESPACE}/property/{{key}}", text=True)
async def remove_property(call: Call) -> Answer:
    """Remove a property; answers its value, nothing where there was none."""
    had = _properties(call)
    await _set(call, {name: value for name, value in had.items() if name != call.path["key"]})
    return Answer(raw=had.get(call.path["key"], "").encode())
