"""Actions on all topics of a namespace at once, and its properties. Its one bundle is the namespace itself."""

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from penstock.broker.topic import Topic
from penstock.model.errors import ErrorKind, PenstockError
from penstock.runtime.tasks import each

from .call import Call
from .operations import BUNDLE, DOMAIN, NAMESPACE, Table
from .topics import logs_of

table = Table()

TOPICS_AT_ONCE: Final = 16  # that are opened

Properties = dict[str, str]


@table.on("GET", f"{DOMAIN}/{{bundle}}")
async def topics_in_bundle(call: Call) -> list[str]:
    """List the topics of one domain in a bundle: all of the namespace's."""
    _check_bundle(call)
    return await logs_of(call, call.path["domain"])


def _check_bundle(call: Call) -> None:
    if call.path.get("bundle", BUNDLE) != BUNDLE:
        raise PenstockError(ErrorKind.NOT_FOUND, f"a namespace has the bundle {BUNDLE} only")


async def _logs(call: Call) -> list[Topic]:
    """Every log of the namespace in the path, or in its bundle."""
    _check_bundle(call)
    namespace, topics = call.namespace, call.broker.topics
    call.broker.namespaces.policies(namespace)
    found = await each(partial(topics.all_of, create=False), topics.names(namespace), TOPICS_AT_ONCE)
    return [log for logs in found for log in logs]


@table.on("PUT", f"{NAMESPACE}/unload", f"{NAMESPACE}/{{bundle}}/unload")
async def unload(call: Call) -> None:
    """Disconnect the producers and consumers of every topic; they come back by themselves."""
    _check_bundle(call)
    namespace = call.namespace
    call.broker.namespaces.policies(namespace)
    for log in call.broker.topics.open_topics:  # the others have no clients
        if log.name.namespace_name == namespace and not log.deleted:
            await call.administration.unload_topic(log.name)


@table.on(
    "POST",
    f"{NAMESPACE}/clearBacklog",
    f"{NAMESPACE}/clearBacklog/{{subscription}}",
    f"{NAMESPACE}/{{bundle}}/clearBacklog",
    f"{NAMESPACE}/{{bundle}}/clearBacklog/{{subscription}}",
)
async def clear_backlog(call: Call) -> None:
    """Count the whole backlog of every topic as acknowledged, on one subscription or on all."""
    wanted = call.subscription if "subscription" in call.path else None
    for log in await _logs(call):
        for subscription in list(log.subscriptions.values()):
            if wanted in (None, subscription.name):
                subscription.skip(log.bounds.next_offset)
                await subscription.flush()


@table.on(
    "POST",
    f"{NAMESPACE}/unsubscribe/{{subscription}}",
    f"{NAMESPACE}/{{bundle}}/unsubscribe/{{subscription}}",
)
async def unsubscribe(call: Call) -> None:
    """Delete a subscription of every topic; 409 while one of them has consumers of it."""
    name = call.subscription
    logs = [log for log in await _logs(call) if name in log.subscriptions]
    busy = next((log for log in logs if log.subscriptions[name].consumers), None)
    if busy is not None:
        raise PenstockError(
            ErrorKind.SUBSCRIPTION_BUSY, f"subscription {name} of {busy.name} has active connected consumers"
        )
    for log in logs:
        await call.broker.subscriptions.delete(log.name, name)


# -- properties


@table.on("GET", f"{NAMESPACE}/properties")
async def properties(call: Call) -> Properties:
    """The properties of a namespace."""
    return call.broker.namespaces.policies(call.namespace).properties


async def _change(call: Call, changed: Callable[[Properties], Properties]) -> None:
    await call.broker.namespaces.change(
        call.namespace,
        lambda now: msgspec.structs.replace(now, properties=call.bounded(changed(now.properties))),
    )


@table.on("PUT", f"{NAMESPACE}/properties", body=Properties)
async def set_properties(call: Call) -> None:
    """Set these properties of a namespace; the others stay."""
    await _change(call, lambda now: now | call.body(Properties))


@table.on("DELETE", f"{NAMESPACE}/properties")
async def clear_properties(call: Call) -> None:
    """Remove all properties of a namespace."""
    await _change(call, lambda now: {})


@table.on("GET", f"{NAMESPACE}/property/{{key}}")
async def get_property(call: Call) -> bytes:
    """The value of a property, as text; empty without one."""
    return (await properties(call)).get(call.path["key"], "").encode()


@table.on("PUT", f"{NAMESPACE}/property/{{key}}/{{value}}")
async def put_property(call: Call) -> None:
    """Set a property of a namespace."""
    await _change(call, lambda now: now | {call.path["key"]: call.path["value"]})


@table.on("DELETE", f"{NAMESPACE}/property/{{key}}")
async def remove_property(call: Call) -> bytes:
    """Remove a property; answers its value, empty without one."""
    had = await get_property(call)
    await _change(call, lambda now: {name: now[name] for name in now if name != call.path["key"]})
    return had
