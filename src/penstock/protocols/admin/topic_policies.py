"""What a topic decides for itself, policy by policy, under Pulsar's paths; `applied` tells what holds."""

from typing import Any

import msgspec

from penstock.model.names import TopicName
from penstock.model.policy import InForce, TopicPolicies
from penstock.protocols.http.answers import NO_CONTENT, Answer

from .call import Call
from .policies import (
    SETTINGS,
    Setting,
    answer,
    quota_field,
    show,
    shown_quotas,
    wanted,
    wanted_quota,
)
from .policy_bodies import QuotaBody
from .position import read_position
from .table import Handler, Table
from .topics import TOPIC

table = Table()


def _topic(call: Call) -> TopicName:
    """The topic whose policies are meant: a partition has its topic's. Raises TOPIC_NOT_FOUND."""
    name, topics = call.topic, call.broker.topics
    if not topics.exists(name):
        raise topics.missing(name)
    return name.base if topics.exists(name.base) else name


def _policies(call: Call) -> TopicPolicies | InForce:
    name, policies = _topic(call), call.broker.policies
    return policies.in_force(name) if call.flag("applied") else policies.of_topic(name)


async def _change(call: Call, field: str, value: Any) -> Answer:
    await call.broker.policies.change_topic(
        _topic(call), lambda now: msgspec.structs.replace(now, **{field: value})
    )
    return NO_CONTENT


def _declare(setting: Setting) -> None:
    path = f"{TOPIC}/{setting.topic}"

    async def get(call: Call) -> Answer:
        return answer(show(setting, _policies(call)))

    async def put(call: Call) -> Answer:
        return await _change(call, setting.field, wanted(setting, call))

    async def unset(call: Call) -> Answer:
        return await _change(call, setting.field, None)

    words = "Say {}; `null` leaves it to the namespace, `applied` says what holds."
    handlers: list[tuple[str, Handler, str, dict[str, Any]]] = [
        ("GET", get, words, {"answer": setting.body | None, "query": ("applied",)}),
        (
            "POST",
            put,
            "Decide {}.",
            {"body": setting.body, "query": (setting.parameter,) if setting.parameter else ()},
        ),
        ("DELETE", unset, "Leave to the namespace {}.", {}),
    ]
    for method, handler, text, more in handlers:
        handler.__doc__ = text.format(setting.says)
        table.on(method, path, **more)(handler)


for _setting in SETTINGS:
    if _setting.topic:
        _declare(_setting)


@table.on("GET", f"{TOPIC}/backlogQuotaMap", query=("applied",), answer=dict[str, QuotaBody])
async def quotas(call: Call) -> Answer:
    """The backlog quotas that the topic decides, by type; `applied`: those that hold."""
    return Answer(body=shown_quotas(_policies(call)))


@table.on("POST", f"{TOPIC}/backlogQuota", query=("backlogQuotaType",), body=QuotaBody)
async def set_quota(call: Call) -> Answer:
    """Bound the backlog, by `backlogQuotaType` destination_storage (bytes) or message_age (seconds)."""
    return await _change(call, quota_field(call), wanted_quota(call))


@table.on("DELETE", f"{TOPIC}/backlogQuota", query=("backlogQuotaType",))
async def unset_quota(call: Call) -> Answer:
    """Leave a backlog quota to the namespace."""
    return await _change(call, quota_field(call), None)


@table.on("PUT", f"{TOPIC}/backlogSize", body=dict[str, Any] | str, answer=int)
async def backlog_size(call: Call) -> Answer:
    """How many bytes were published from a message on: `{"ledgerId", "entryId"}`, `"earliest"` or `"latest"`."""
    position = read_position(call.content)
    size = 0
    logs = await call.broker.topics.all_of(call.topic, create=False)
    for log in logs:
        if position.special or position.target.ledger == log.ledger:
            offset = await log.offset_after(position.target, inclusive=True)
            size += await log.size_since(await log.entry_at(offset))
        elif position.target.ledger < log.ledger and len(logs) == 1:
            size += (
                log.size_bytes
            )  # the position is of an older log of this name, so all of this one follows it
    return Answer(body=size)
