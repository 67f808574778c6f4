"""What is to be measured, by a command's options, and the topic of a run."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, Self

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.client.paths import admin_path
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName

from .pace import Bounds
from .peers import Load, Wire

SECONDS: Final = 10.0  # of a run that is told no other end
WARM_S: Final = 1.0


class Plan(NamedTuple):
    """What is to be measured."""

    access: Access
    wire: Wire
    load: Load
    bounds: Bounds

    @classmethod
    def of(cls, access: Access, topic: str, options: dict[str, Any]) -> Self:
        """Takes a command's options away that are a plan's."""
        names = ("size", "producers", "pending", "keys", "batch")
        load = Load(
            topic, **{name: options.pop(name) for name in names}, batch_delay_ms=options.pop("batch_delay")
        )
        messages, duration_s = options.pop("messages"), options.pop("duration")
        warm_s = options.pop("warm_up")
        if messages is None and duration_s is None:
            duration_s = SECONDS
        if warm_s is None:
            warm_s = min(WARM_S, duration_s / 4) if messages is None else 0.0
        return cls(
            access, options.pop("protocol"), load, Bounds(duration_s, messages, options.pop("rate"), warm_s)
        )


@contextmanager
def topic_of_run(client: HttpClient, topic: TopicName | None, partitions: int) -> Iterator[TopicName]:
    """The topic, or one that is there only meanwhile."""
    if topic is not None:
        client.partitions(topic)  # raises where it does not exist
        yield topic
        return
    made = TopicName.parse(f"penstock-bench-{secrets.token_hex(4)}")
    client.create_topic(made, partitions)
    try:
        yield made
    finally:
        with suppress(PenstockError):
            path = f"{admin_path(made)}/partitions" if partitions else admin_path(made)
            client.call("DELETE", path, params={"force": "true"})
