"""Differences of two schemas: lines of text for people; additions, removals and changes by path for programs."""

import json
from collections.abc import Iterator
from difflib import unified_diff
from typing import Any, NamedTuple

import click

from . import output


class Side(NamedTuple):
    """One of the two: what it is called, its type and its definition as text."""

    name: str
    type: str
    definition: str

    @property
    def tree(self) -> Any:
        """The definition as JSON, if it is that; else its text."""
        try:
            return json.loads(self.definition) if self.definition else {}
        except ValueError:
            return self.definition

    def lines(self) -> list[str]:
        tree = self.tree
        text = tree if isinstance(tree, str) else json.dumps(tree, indent=2, ensure_ascii=False)
        return [f"type: {self.type}", *text.splitlines()]


def show_difference(old: Side, new: Side) -> int:
    """Show it; returns the exit code, 1 when there is one."""
    if output.for_people():
        found = list(unified_diff(old.lines(), new.lines(), old.name, new.name, lineterm=""))
        for line in found:
            color = {"+": "green", "-": "red"}.get(line[:1])
            click.echo(click.style(line, fg=color) if color else line)
        if not found:
            output.say(f"{old.name} and {new.name} are the same")
        return 1 if found else 0
    changes = list(changed(old, new))
    for change in changes:
        output.line(change)
    return 1 if changes else 0


def changed(old: Side, new: Side) -> Iterator[dict[str, Any]]:
    """The differences, each with its place: the fields of records go by their names."""
    if old.type != new.type:
        yield {"change": "changed", "at": "type", "old": old.type, "new": new.type}
    yield from _differences(old.tree, new.tree, "")


def _differences(old: Any, new: Any, at: str) -> Iterator[dict[str, Any]]:
    before, after = _children(old), _children(new)
    if before is None or after is None:
        if old != new:
            yield {"change": "changed", "at": at, "old": old, "new": new}
        return
    for name in [*before, *(name for name in after if name not in before)]:
        place = f"{at}.{name}" if at else name
        if name not in after:
            yield {"change": "removed", "at": place, "old": before[name]}
        elif name not in before:
            yield {"change": "added", "at": place, "new": after[name]}
        else:
            yield from _differences(before[name], after[name], place)


def _children(tree: Any) -> dict[str, Any] | None:
    """What a tree consists of: members of an object, a list's named parts by name; None for anything else."""
    if isinstance(tree, dict):
        return tree
    named = isinstance(tree, list) and all(isinstance(one, dict) and "name" in one for one in tree)
    return {str(one["name"]): one for one in tree} if named else None
