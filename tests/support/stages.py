"""Staging and committing counted messages over HTTP."""

import pytest

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.http.stages import StageCount, Stages
from penstock.testing.credentials import Issuer
from penstock.testing.server import Address
from penstock.wire.batch import pack_plain
from penstock.wire.bulk import batch_entry, pack_sections

issuer = Issuer()


def topic(name: str) -> TopicName:
    return TopicName.parse(name)


def stage(client: Stages, writer: str, batch: int, name: str, **counts: int) -> StageCount:
    """Stage so many messages for each topic; how a commit is to name them."""
    sections = []
    for local, count in counts.items():
        entry = batch_entry(pack_plain([b"x"] * count), count, producer="p", sequence_id=0, publish_time=1)
        sections.append((str(topic(local.replace("_", "-"))), [entry]))
    client.stage(writer, batch, name, 0, b"".join(pack_sections(sections)))
    size = sum(len(entry) for _, entries in sections for entry in entries)
    return StageCount(name, 1, sum(counts.values()), size)


def latest(server: Address, name: str) -> int:
    with HttpClient(server.url) as http:
        return http.offsets(topic(name), 0).latest


def refused(call: object, *args: object, **more: object) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        call(*args, **more)  # type: ignore[operator]
    return caught.value


def of(role: str, server: Address) -> Stages:
    """A client under a role."""
    return Stages(Access(url=server.url, token=issuer.token(role)), retry_s=0)
