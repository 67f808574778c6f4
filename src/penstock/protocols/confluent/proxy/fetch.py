"""Fetching records by a consumer instance."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Final

from penstock.broker.groups import GroupMember, GroupRecord, Position, TopicPartition
from penstock.model.confluent import ConfluentError
from penstock.model.errors import PenstockError
from penstock.protocols.confluent.content import NOT_FOUND, NOT_FOUND_TEXT
from penstock.protocols.http.answers import to_json
from penstock.protocols.http.long_poll import LongPoll

from .call import ProxyCall
from .codes import ILLEGAL_STATE
from .consumers import check_rights, instance_of
from .formats import accepted_records
from .instances import Instance, Way
from .records import Record, Records

# Confluent's consumer.request.max.bytes; limits.max_read_bytes counts, too.
BYTES_MAX: Final = 64 * 1024 * 1024


async def fetch(call: ProxyCall) -> None:
    """Records, as soon as there are some. One that cannot be read is an error of its own, and the next fetch goes on behind it."""
    limits = call.caller.context.limits
    timeout_ms = _wait(call)
    most_ms = limits.max_wait_ms
    instance = await instance_of(call, most_ms if timeout_ms is None else min(timeout_ms, most_ms))
    if instance is None:
        return
    media = accepted_records(call.exchange, instance.format)
    if instance.way is Way.NONE:
        raise ConfluentError(
            ILLEGAL_STATE,
            "Illegal state: Consumer is not subscribed to any topics or assigned any partitions",
        )
    wait_ms = instance.wait_ms if timeout_ms is None else min(timeout_ms, instance.wait_ms)
    bytes_max = min(call.number("max_bytes", BYTES_MAX) or 1, limits.max_read_bytes)
    bytes_min = min(instance.bytes_min, bytes_max)
    async with (
        LongPoll(call.proxy.polls, call.exchange) as poll,
        call.proxy.instances.turn(instance) as member,
    ):
        allowed = partial(check_rights, call, instance, member)
        poll.watch(call.caller, allowed)
        instance.wake = poll.stop
        try:
            if instance.requests > 1:  # others wait for their turn
                wait_ms = 0
            found = await poll.until(member.fetch(wait_ms, bytes_max, bytes_min), None) or []
        finally:
            instance.wake = None
        try:
            if poll.lapsed is not None:
                raise poll.lapsed
            for topic in {record.topic for record in found}:  # also those that came with a pattern
                call.caller.may_consume(topic, instance.key.group)
            await _answered(call, instance, member, found, media, poll)
        except ConfluentError:  # of a record
            raise
        except BaseException:
            await _give_back(member, found)
            raise


async def _answered(
    call: ProxyCall,
    instance: Instance,
    member: GroupMember,
    found: Sequence[GroupRecord],
    media: str,
    poll: LongPoll,
) -> None:
    """Answer with records, up to the first that cannot be read; if that is the first one, raise why, and go on behind it."""
    shown_records: list[Record] = []
    records = Records(call.proxy.broker, call.proxy.schemas, instance.format, call.caller)
    size = sum([record.size for record in found])
    holding = call.exchange.holding
    if holding is not None:
        await holding.reserved_soon(size)
    try:
        for place, record in enumerate(found):
            try:
                shown_records.append(await records.show(record))
            except ConfluentError:
                if place:
                    await _give_back(member, found[place:])
                    break
                await _give_back(member, found[1:])
                raise
            except PenstockError:  # it may pass: the record is read again
                if not place:
                    raise
                await _give_back(member, found[place:])
                break
        body = to_json(shown_records)
        await call.exchange.whole(200, [(b"content-type", media.encode())], body)
    finally:
        if holding is not None:
            holding.send(-size)
    if not await poll.client_took_it():
        await _give_back(member, found)


async def _give_back(member: GroupMember, records: Sequence[GroupRecord]) -> None:
    """No client got these records: the next fetch begins with them."""
    first: dict[TopicPartition, Position] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    held = set(member.assignment)
    await member.seek({one: at for one, at in first.items() if one in held})


def _wait(call: ProxyCall) -> int | None:
    text = call.text("timeout")
    if not text or re.fullmatch("-[0-9]{1,10}", text):  # Confluent's default is -1
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 11):
        raise ConfluentError(NOT_FOUND, NOT_FOUND_TEXT)  # as Confluent's server answers a number that is none
    return int(text)
