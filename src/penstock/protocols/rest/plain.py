"""The commonest requests of both dialects: values and nothing else, to one partition, which are one entry.

Nothing is made for a single message here but its payload. What does not fit is for `publishing`; then nothing has
happened yet.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from penstock.broker.producer import Placement
from penstock.codec.codec import Codec
from penstock.model.errors import PenstockError
from penstock.protocols.declarations import Declaration

from .operations import Target
from .services import Services


class Placed(NamedTuple):
    """Where the messages are, and the version of their schema."""

    placement: Placement
    version: int | None


async def publish_texts(rest: Services, target: Target, texts: Sequence[str]) -> Placed | None:
    """Publish texts without a schema to a topic that is known to take them; None where it does not fit."""
    if len(texts) > rest.limits.max_messages_per_request:
        return None
    cached = rest.producers.ready(target.topic)
    version = None if cached is None else rest.producers.string_version(target.topic, cached)
    if cached is None or version is None:
        return None
    payloads = [text.encode() for text in texts]
    if not cached.producer.takes_plain(payloads, target.partition):
        return None
    return Placed(await cached.producer.publish_plain(payloads, version, target.partition), version)


async def publish_values(
    rest: Services,
    target: Target,
    declaration: Declaration,
    values: Sequence[Any],
    read: Callable[[Codec, Any], Any] | None = None,
) -> Placed | None:
    """The same for values of one schema that is named; None where one of them is null, or bad. `read` makes a value of
    what the dialect has."""
    if declaration.empty or not 0 < len(values) <= rest.limits.max_messages_per_request:
        return None
    cached = rest.producers.ready(target.topic)
    if cached is None or None in values:
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
    if not cached.producer.takes_plain(payloads, target.partition):
        return None
    placement = await cached.producer.publish_plain(payloads, scheme.version, target.partition)
    return Placed(placement, scheme.version)
