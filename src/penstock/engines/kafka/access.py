"""Checks before a start whether other principals may write the server's internal topics, which hold permissions, or join the group
of its processes."""

import asyncio
from collections import defaultdict
from typing import Final

import msgspec

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import PenstockError

from .cluster import LOOK_S, KafkaCluster
from .driver.acls import NoAuthorizer, joiners, writers
from .driver.threads import in_thread
from .internal import internal_topics, owner_group

CHECK_S: Final = 20.0
_HOLD: Final = "their records decide about permissions here (docs/security.md, Before Kafka)"


class Access(msgspec.Struct, frozen=True):
    """The result, in sentences: confirmed findings, and doubts."""

    right: list[str]
    doubts: list[str]


async def check_access(settings: ClusterSettings) -> Access:
    """Ask the cluster which principals may write the internal topics and join the group; raises BAD_PARAMETER for settings that cannot be used."""
    names = list(internal_topics(settings).values())
    topics = ", ".join(names)
    group = owner_group(settings)
    cluster = KafkaCluster(settings)
    try:
        async with asyncio.timeout(CHECK_S):
            await cluster.admin.check_reachable(LOOK_S)
            own = await in_thread(lambda: cluster.clients.credentials.principal)
            found = await writers(cluster.admin, names)
            joining = await joiners(cluster.admin, group)
    except NoAuthorizer:
        return Access(
            [],
            [f"the Kafka cluster has no authorizer: any client may write {topics}, and {_HOLD}"],
        )
    except (PenstockError, TimeoutError) as error:
        why = error.message if isinstance(error, PenstockError) else "the cluster does not answer"
        return Access([], [f"the principals that may write {topics} in Kafka could not be checked: {why}"])
    finally:
        await cluster.close()
    others: defaultdict[frozenset[str], list[str]] = defaultdict(list)
    for name, principals in found.items():
        others[principals - {own}].append(name)
    own_said = (
        "the principal of this server is its certificate's name" if own is None else f"this server is {own}"
    )
    secured = others.pop(frozenset(), [])
    right = [f"Kafka's ACLs let no other principal write {', '.join(secured)} ({own_said})"]
    doubts = [
        f"{', '.join(sorted(principals))} may write, delete or alter {', '.join(written)} in Kafka ({own_said}), and {_HOLD}"
        for principals, written in others.items()
    ]
    if joining - {own}:
        doubts.append(
            f"{', '.join(sorted(joining - {own}))} may join the consumer group {group} in Kafka ({own_said}): a member that is no "
            "process of this server keeps partitions from being served"
        )
    return Access(right if secured else [], doubts)
