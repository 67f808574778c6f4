"""The command `penstock`. Each subcommand is imported when it is called: `serve` must not load a client."""

import codecs
import importlib
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from penstock import __version__

from . import output
from .groups import Group

# By section of the help and by name: the module, and what the list of commands says.
_SECTIONS: Final = {
    "Messages": {
        "produce": ("messages.produce", "Publish messages to a topic."),
        "read": ("messages.read", "Read a topic from a position on."),
        "consume": ("messages.consume", "Consume a topic under a subscription."),
        "request": ("messages.request", "Send a request and print its reply."),
        "bench": ("bench", "Measure how fast a server takes, delivers and answers messages."),
    },
    "Administration": {
        "top": ("top", "Watch topics: rates, backlogs, consumers."),
        "topics": ("topics", "List, create, describe and delete topics; their messages and properties."),
        "subscriptions": ("subscriptions", "List, create, move, skip, peek and delete subscriptions."),
        "namespaces": ("namespaces", "List, create, describe and delete namespaces."),
        "tenants": ("namespaces", "List, create, describe and delete tenants."),
        "policies": ("policies", "Retention, quotas, rates and more, of a namespace or a topic."),
        "permissions": ("permissions", "List, grant and revoke what roles may do."),
        "schemas": ("schemas", "List, show, compare, check and register schemas."),
        "brokers": ("brokers", "Ask how the server is, and what it is doing."),
        "writers": ("writers", "List and forget the writers of staged batches."),
        "api": ("api", "Send one request, for what has no command."),
    },
    "Pipelines": {
        "pipeline": ("pipeline", "Run declared pipelines: topics to topics and tables, on Spark."),
    },
    "Servers": {
        "serve": ("serve", "Serve topics over HTTP and WebSocket."),
        "backup": ("storage", "Copy a data folder's storage while the server runs."),
        "restore": ("storage", "Make a backup the content of a data folder."),
        "check": ("storage", "Look through a data folder for what is wrong."),
        "tokens": ("credentials", "Make keys and tokens, and check tokens."),
        "users": ("credentials", "Users with passwords."),
        "demo": ("main", "Show what Penstock does, on real flights."),
    },
    "This command": {
        "context": ("context", "Name servers, and choose which one is asked."),
    },
}
_COMMANDS: Final = {name: entry for section in _SECTIONS.values() for name, entry in section.items()}

_UNAUTHORIZED: Final = 401
INTERRUPTED: Final = 130  # what shells say of a command that Ctrl-C ended

# Hints for errors of the server, by kind.
_HINTS: Final = {
    "UNAUTHENTICATED": "a token is named by --token-file, PENSTOCK_TOKEN or a context",
    "TOPIC_NOT_FOUND": "penstock topics list shows those of a namespace",
    "NAMESPACE_NOT_FOUND": "penstock namespaces list shows what there is",
    "SUBSCRIPTION_NOT_FOUND": "penstock subscriptions list shows those of a topic",
}


class Commands(Group):
    """The subcommands by name; their one-line helps are known without importing them."""

    shows_shared = True

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"penstock.cli.{_COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
        return command

    def line_of(self, ctx: click.Context, name: str) -> str:
        """What a subcommand does, without importing it."""
        return _COMMANDS[name][1]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def group() -> None:
    """A gate between the web and a log of messages.

    The options that say which server is asked, as whom, and in which form the answer comes may be given before the
    subcommand or after it.
    """


@click.command("demo")
@click.option("--once", is_flag=True, help="Stop everything at the end.")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True)
@click.option("--engine", metavar="URL", help="Through a cluster: pulsar://HOST:PORT, kafka://HOST:PORT.")
@click.option("--admin", metavar="URL", help="Where a Pulsar cluster is administered: http://HOST:PORT.")
def demo_command(once: bool, port: int, engine: str | None, admin: str | None) -> None:
    """Show what Penstock does, on 336,776 real flights."""
    from penstock.demo import cluster, show

    kafka = engine is not None and engine.startswith("kafka")
    if kafka and admin is not None:
        raise click.UsageError("--admin is for a Pulsar cluster: Kafka has no address of that kind")
    if not kafka and (engine is None) != (admin is None):
        raise click.UsageError("--engine and --admin go together for a Pulsar cluster")
    if engine is not None:
        cluster.show(engine, admin, port=port, once=once)
    else:
        show.show(port=port, once=once)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command and exit: 0; 1 with one sentence on stderr; 2 for wrong usage; 130 after Ctrl-C."""
    if (sys.argv[1:] if arguments is None else arguments)[:1] == ["serve"]:
        # A SIGHUP ends no server, also while its modules are imported; the loop hears later ones.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from penstock.model.errors import PenstockError

    _streams()
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
        hint = _hint(error)
        _fail(f"{error.message}; {hint}" if hint else error.message)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(INTERRUPTED)
    except OSError as error:
        output.abandon()
        _fail(str(error))
    except UnicodeError as error:
        _fail(f"what was given is no text: {error}")
    sys.exit(result if isinstance(result, int) else 0)


def _streams() -> None:
    """Nothing instead of a standard stream that is closed; letters that the output's encoding lacks by their escapes."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - until the end
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        codecs.register_error("json", _escaped)
        sys.stdout.reconfigure(errors="json")


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Letters that an encoding lacks as JSON escapes them, so that JSON stays JSON."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _hint(error: Any) -> str:
    """A hint: for an error of the server, and if none could be reached."""
    from penstock.client.http import RemoteError

    if isinstance(error, RemoteError):  # of a cluster behind the server only the status is known
        return _HINTS.get(error.kind.name, "") if error.code or error.status == _UNAUTHORIZED else ""
    if error.kind.name == "UNAVAILABLE" and "cannot be reached" in error.message:
        return "another server is named by --url, PENSTOCK_URL or a context"
    return ""


def _fail(message: str) -> NoReturn:
    click.echo(f"penstock: {message}", err=True)
    sys.exit(1)
