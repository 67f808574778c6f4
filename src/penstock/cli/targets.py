"""What policies and permissions are of: a namespace (`tenant/namespace`) or a topic (anything else)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

import click

from penstock.client.paths import admin_path, namespace_path
from penstock.model.names import NamespaceName, TopicName

from .connection import NamespaceType, TopicType
from .typed import ParamType

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Target(NamedTuple):
    """A namespace or a topic, by its path of the admin API."""

    path: str
    name: str
    topic: bool

    @classmethod
    def parse(cls, text: str) -> Self:
        """`public/default` is a namespace; `orders`, `public/default/orders` and `persistent://…` are topics."""
        if text.count("/") == 1:
            namespace = NamespaceName.parse(text)
            return cls(namespace_path(namespace), str(namespace), False)
        topic = TopicName.parse(text)
        return cls(admin_path(topic), str(topic), True)


class TargetType(ParamType[Target]):
    """A namespace or a topic."""

    name = "target"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Target:
        return value if isinstance(value, Target) else Target.parse(str(value))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Namespaces and topics, as the word goes on."""
        namespaces: list[CompletionItem] = []
        if "://" not in incomplete and incomplete.count("/") < 2:
            namespaces = NamespaceType().shell_complete(ctx, param, incomplete)
        if incomplete.count("/") == 1:
            return namespaces  # of one that is not named in full, no topic can be asked for
        return [*namespaces, *TopicType().shell_complete(ctx, param, incomplete)]


target_argument = click.argument("target", type=TargetType())
