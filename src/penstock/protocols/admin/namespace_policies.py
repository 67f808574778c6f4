"""What a namespace decides for its topics, policy by policy, under Pulsar's paths."""

from typing import Any

import msgspec

from penstock.protocols.http.answers import NO_CONTENT, Answer

from .call import Call
from .namespaces import NAMESPACE
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
from .table import Handler, Table

table = Table()


async def _change(call: Call, field: str, value: Any) -> Answer:
    await call.broker.namespaces.change(
        call.namespace, lambda now: msgspec.structs.replace(now, **{field: value})
    )
    return NO_CONTENT


def _declare(setting: Setting) -> None:
    path = f"{NAMESPACE}/{setting.namespace}"

    async def get(call: Call) -> Answer:
        shown = show(setting, call.broker.namespaces.policies(call.namespace))
        if shown is None and setting.field == "max_topics":
            shown = call.broker.policies.max_topics(call.namespace)  # Java's client wants a number
        return answer(shown)

    async def put(call: Call) -> Answer:
        return await _change(call, setting.field, wanted(setting._replace(parameter=""), call))

    async def unset(call: Call) -> Answer:
        return await _change(call, setting.field, None)

    handlers: list[tuple[str, Handler, str, dict[str, Any]]] = [
        ("GET", get, "Say {}; `null` leaves it to the server.", {"answer": setting.body | None}),
        (setting.method, put, "Decide {}.", {"body": setting.body}),
        ("DELETE", unset, "Leave to the server {}.", {}),
    ]
    for method, handler, words, more in handlers:
        handler.__doc__ = words.format(setting.says)
        table.on(method, path, **more)(handler)


for _setting in SETTINGS:
    if _setting.namespace:
        _declare(_setting)


@table.on("GET", f"{NAMESPACE}/backlogQuotaMap", answer=dict[str, QuotaBody])
async def quotas(call: Call) -> Answer:
    """The backlog quotas that the namespace decides, by type."""
    return Answer(body=shown_quotas(call.broker.namespaces.policies(call.namespace)))


@table.on("POST", f"{NAMESPACE}/backlogQuota", query=("backlogQuotaType",), body=QuotaBody)
async def set_quota(call: Call) -> Answer:
    """Bound the backlog, by `backlogQuotaType` destination_storage (bytes) or message_age (seconds)."""
    return await _change(call, quota_field(call), wanted_quota(call))


@table.on("DELETE", f"{NAMESPACE}/backlogQuota", query=("backlogQuotaType",))
async def unset_quota(call: Call) -> Answer:
    """Leave a backlog quota to the server."""
    return await _change(call, quota_field(call), None)
