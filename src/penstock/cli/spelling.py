"""A word that is nearly right is answered with the right one."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

import click

from . import typed


def nearest(word: str, known: Iterable[str]) -> str:
    """` Did you mean …?` for a word that is nearly one of those known, else nothing."""
    found = get_close_matches(word.lower(), list(known), n=3)
    return f" Did you mean {' or '.join(map(repr, found))}?" if found else ""


class Choice(typed.Choice[str]):
    """One of some words, in any case."""

    def __init__(self, *choices: str) -> None:
        super().__init__(choices, case_sensitive=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            similar = nearest(str(value), {choice.lower(): choice for choice in self.choices})
            self.fail(f"{error.message}{similar}", param, ctx)
