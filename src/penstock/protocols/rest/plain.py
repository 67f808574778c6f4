"""How a produce request is served, in either dialect.

The commonest requests, values and nothing else for one partition, become one entry or a run of them: nothing is made for a
single message but its payload. What does not fit is for `publishing`; then nothing has happened yet.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.broker.producer import Placement, Producer
from penstock.codec.codec import Codec
from penstock.model.errors import PenstockError
from penstock.model.message import Payloads
from penstock.protocols.caller import Caller
from penstock.protocols.declarations import Declaration
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.limits import Limits

from .operations import Target
from .publishing import Job, Published, publish
from .services import Services


class Plain(msgspec.Struct, frozen=True, gc=False):
    """The values of a body whose messages have nothing else: texts, or values of the declared schema.

    `read` makes a value of what the dialect has.
    """

    values: Sequence[Any]
    declaration: Declaration | None = None
    read: Callable[[Codec, Any], Any] | None = None
    producer_name: str = ""


class Form(NamedTuple):
    """The bodies of a dialect: how requests are read and answers written.

    `plain` is None for a body with more than values, or a bad one; `job` reads any, and raises the error of a bad one.
    """

    plain: Callable[[bytes], Plain | None]
    job: Callable[[Target, bytes, Limits, dict[str, str] | None], Job]
    plain_answer: Callable[[Placement, int | None], bytes]
    answer: Callable[[Published], bytes]


class _Ready(msgspec.Struct, frozen=True, gc=False):
    producer: Producer
    payloads: Payloads
    size_bytes: int  # of all of them, at most
    version: int | None


async def serve_produce(
    form: Form, rest: Services, caller: Caller, target: Target, exchange: Exchange
) -> None:
    """Publish what a request has, and answer it."""
    caller.may_produce(target.topic)
    body = await exchange.body(rest.limits.max_request_bytes)
    if rest.pass_on is not None and await rest.passed_on(exchange, body):
        return
    trace = exchange.trace()
    plain = form.plain(body) if trace is None else None
    ready = None
    if plain is not None and 0 < len(plain.values) <= rest.limits.max_messages_per_request:
        if plain.declaration is None:
            ready = _texts(rest, target, body, plain)
        else:
            ready = await _declared(rest, target, plain.declaration, plain)
    if ready is None or not ready.producer.takes_plain(
        len(ready.payloads), ready.size_bytes, target.partition
    ):
        await exchange.answer(form.answer(await publish(rest, form.job(target, body, rest.limits, trace))))
        return
    version = ready.version
    placed = await ready.producer.publish_plain(ready.payloads, version, target.partition)
    if isinstance(placed, Placement):
        await exchange.answer(form.plain_answer(placed, version))
    else:
        each = Published(placed, [version] * len(placed), version, own_versions=False)
        await exchange.answer(form.answer(each))


def _texts(rest: Services, target: Target, body: bytes, plain: Plain) -> _Ready | None:
    """Texts without a schema for a topic that is known to take them."""
    texts: Sequence[str] = plain.values
    cached = rest.producers.ready(target.topic, plain.producer_name)
    version = None if cached is None else rest.producers.string_version(target.topic, cached)
    if cached is None or version is None:
        return None
    if body.isascii() and b"\\" not in body:  # so are the texts, and they are encoded together
        return _Ready(cached.producer, texts, len(body), version)
    return _Ready(cached.producer, [text.encode() for text in texts], len(body), version)


async def _declared(rest: Services, target: Target, declaration: Declaration, plain: Plain) -> _Ready | None:
    """Values of a schema that is known, or without one for a topic of JSON; None, too, if one of them is null, or bad."""
    values, read = plain.values, plain.read
    if None in values:
        return None
    cached = rest.producers.ready(target.topic, plain.producer_name)
    if cached is None:
        return None
    if declaration.empty and not cached.topic_schemas.of_json:
        return None
    scheme = await cached.topic_schemas.scheme(declaration, register=False)
    codec = scheme.codec
    if codec is None or scheme.pair is not None or scheme.fresh is not None:
        return None
    encode = codec.encode
    try:
        if read is not None:
            values = [read(codec, value) for value in values]
        payloads = [encode(value) for value in values]
    except PenstockError:
        return None
    return _Ready(cached.producer, payloads, sum(map(len, payloads)), scheme.version)
