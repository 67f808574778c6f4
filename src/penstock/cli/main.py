"""The command `penstock`. Each subcommand is imported when it is called: `serve` must not load a client."""

import importlib
import signal
import sys
from typing import Any, Final, NoReturn

import click

from penstock import __version__

_COMMANDS: Final = {
    "serve": ("serve", "Serve topics over HTTP and WebSocket."),
    "topics": ("topics", "List, create, describe and delete topics."),
    "produce": ("produce", "Publish messages to a topic."),
    "read": ("read", "Read a topic from a position on."),
    "consume": ("consume", "Consume a topic under a subscription."),
    "request": ("request", "Send a request and print its reply."),
    "tokens": ("tokens", "Make keys and tokens, and check tokens."),
    "users": ("users", "Users with passwords."),
    "schemas": ("schemas", "List, show, check and register schemas."),
    "writers": ("writers", "List and forget the writers of staged batches."),
    "backup": ("backup", "Copy a data folder's storage while the server runs."),
    "restore": ("restore", "Make a backup the content of a data folder."),
    "check": ("check", "Look through a data folder for what is wrong."),
    "pipeline": ("pipeline", "Run declared pipelines: topics to topics and tables, on Spark."),
    "demo": ("demo", "Show what Penstock does, on real flights."),
}

INTERRUPTED: Final = 130  # what shells say of a command that Ctrl-C ended


class Commands(click.Group):
    """The subcommands by name; their one-line helps are known without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"penstock.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def group() -> None:
    """A context between the web and a log of messages."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and exit: 0; 1 with one sentence on stderr; 2 for wrong usage; 130 after Ctrl-C."""
    if (sys.argv[1:] if arguments is None else arguments)[:1] == ["serve"]:
        # A SIGHUP ends no server, also while its modules are imported; the loop hears later ones.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from penstock.model.errors import PenstockError

    try:
        result: Any = group.main(args=arguments, prog_name="penstock", standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.UsageError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _fail(error.format_message())
    except PenstockError as error:
        _fail(error.message)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    sys.exit(result if isinstance(result, int) else 0)


def _fail(message: str) -> NoReturn:
    click.echo(f"penstock: {message}", err=True)
    sys.exit(1)
