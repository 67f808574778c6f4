"""The sets of topics that staged batches are numbered for."""

from collections.abc import Sequence
from typing import Final

from penstock.broker.staging import Caller
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.stage import Targets

TARGET_BYTES_MAX: Final = 4096  # the names of a set; they are the key of its commit


def names_of(topics: Sequence[TopicName]) -> Targets:
    """A set of topics as a key."""
    return tuple(sorted({str(name.base) for name in topics}))


def declared(topics: Sequence[TopicName], caller: Caller) -> Targets:
    """The set that a writer declares. Raises FORBIDDEN, BAD_PARAMETER."""
    for name in topics:
        caller.may_produce(name)
        check_kept(name)
    names = names_of(topics)
    if sum(len(name.encode()) for name in names) > TARGET_BYTES_MAX:
        raise PenstockError(
            ErrorKind.BAD_PARAMETER,
            f"the names of a commit's topics have more than {TARGET_BYTES_MAX} bytes; declare none instead",
        )
    return names


def check_kept(name: TopicName) -> None:
    """Raise BAD_PARAMETER for a topic that keeps nothing."""
    if not name.persistent:
        raise PenstockError(ErrorKind.BAD_PARAMETER, f"{name} keeps nothing: it cannot be staged for")
