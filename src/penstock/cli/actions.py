"""Operations of the admin API that need no more than a name, as a table; and asking before what cannot be undone."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import click

from penstock.client.http import HttpClient, RemoteError
from penstock.client.paths import admin_path, namespace_path, subscription_admin_path
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName

from . import output
from .connection import connected, namespace_argument, topic_argument
from .options import Decorated, with_options

Named = dict[str, Any]  # arguments of a command by name


class Kind(NamedTuple):
    """What an action is done to: its arguments, its path, and what it is called."""

    arguments: tuple[Callable[[Decorated], Decorated], ...]
    path: Callable[[Named], str]
    name: Callable[[Named], str]


class Action(NamedTuple):
    """One operation: the command's name, method and path below its subject.

    `done` is printed if the answer is empty. `asks` is the question to confirm first. `flags` are parameters of
    the query by option, with their help.
    """

    name: str
    method: str
    path: str
    help: str
    done: str = ""
    asks: str = ""
    flags: tuple[tuple[str, str, str], ...] = ()


yes_option: Final = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
subscription_argument: Final = click.argument("subscription")
TOPIC: Final = Kind(
    (topic_argument,), lambda given: admin_path(given["topic"]), lambda given: str(given["topic"])
)
NAMESPACE: Final = Kind(
    (namespace_argument,),
    lambda given: namespace_path(given["namespace"]),
    lambda given: str(given["namespace"]),
)
SUBSCRIPTION: Final = Kind(
    (topic_argument, subscription_argument),
    lambda given: subscription_admin_path(given["topic"], given["subscription"]),
    lambda given: f"{given['subscription']} of {given['topic']}",
)


def add_actions(group: click.Group, kind: Kind, actions: Sequence[Action]) -> None:
    """Give a group a command for each action."""
    for action in actions:
        group.add_command(_command(kind, action))


def _command(kind: Kind, action: Action) -> click.Command:
    flags = {option.lstrip("-").replace("-", "_"): parameter for option, parameter, _ in action.flags}

    def run(client: HttpClient, **given: Any) -> None:
        sure(given.pop("yes", True), f"{action.asks.format(kind.name(given))}")
        query = {parameter: "true" for name, parameter in flags.items() if given.pop(name)}
        content, _ = client.fetch(action.method, kind.path(given) + action.path, params=query)
        show(
            content, action.done.format(kind.name(given)), {name: str(value) for name, value in given.items()}
        )

    options = [click.option(option, is_flag=True, help=says) for option, _, says in action.flags]
    if action.asks:
        options.append(yes_option)
    return click.command(action.name, help=action.help)(
        with_options(connected(run), (*kind.arguments, *options))
    )


def sure(yes: bool, what: str) -> None:
    """Ask on a terminal; programs are not asked. Raises ClickException if the answer is no."""
    if yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    if not click.confirm(f"This will {what}. Go on?", err=True):
        raise click.ClickException("nothing was changed")


def show(content: bytes, sentence: str, subject: dict[str, str]) -> None:
    """An answer of the admin API: an object as a record, a list as rows, a value by itself; an empty answer as `done`."""
    import msgspec

    if not content:
        output.done(sentence, **subject)
        return
    try:
        found = msgspec.json.decode(content)
    except msgspec.DecodeError:
        found = content.decode("utf-8", "replace")
    if isinstance(found, dict):
        output.record(found)
    elif isinstance(found, list):
        names(found, sentence or "there are none")
    elif output.for_people():
        output.write(output.text(found))
    else:
        output.line({"value": found})


def names(found: Sequence[Any], nothing: str, column: str = "name") -> None:
    """A list as rows: objects as they are, anything else in one column."""
    rows = [one if isinstance(one, dict) else {column: one} for one in found]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    output.rows(columns or [column], rows, nothing)


def of_each(topics: Iterable[str], ask: Callable[[TopicName], Any]) -> dict[str, Any]:
    """The answers by topic name, without topics that were deleted since they were listed."""
    found = {}
    for name in topics:
        try:
            found[name] = ask(TopicName.parse(name))
        except RemoteError as error:
            if error.kind is not ErrorKind.TOPIC_NOT_FOUND:
                raise
    return found
