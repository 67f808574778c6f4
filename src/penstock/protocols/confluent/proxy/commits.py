"""Commits of groups that are subscriptions: the mark, and what a mark cannot express."""

from typing import Final

import msgspec

from penstock.broker.groups import Committed
from penstock.broker.subscription import Subscription

NOTE: Final = "penstock-commit"  # a property


class _Note(msgspec.Struct, frozen=True):
    """A commit that the mark of a subscription cannot express: metadata, and offsets within a batch or beyond the end of the log. It is
    kept in the subscription's properties, and counts until the mark is another one."""

    mark: int
    offset: int
    metadata: str


_notes: Final = msgspec.json.Decoder(_Note)


def committed_in(source: Subscription) -> Committed:
    """The commit that a subscription stands for."""
    figures = source.figures()
    try:
        found = _notes.decode(figures.properties.get(NOTE, ""))
    except msgspec.DecodeError:
        return Committed(figures.mark)
    return Committed(found.offset, found.metadata) if found.mark == figures.mark else Committed(figures.mark)


async def note(source: Subscription, given: Committed) -> None:
    """Keep a commit after the mark was set."""
    await source.refresh()
    if committed_in(source) == given:
        return
    figures = source.figures()
    others = {name: text for name, text in figures.properties.items() if name != NOTE}
    if given != Committed(figures.mark):
        made = _Note(figures.mark, given.offset, given.metadata)
        others[NOTE] = msgspec.json.encode(made).decode()
    await source.set_properties(others)
