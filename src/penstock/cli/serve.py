"""`penstock serve`."""

import os
import sys
from pathlib import Path

import click

from penstock.model.worker import WorkerAccess
from penstock.server.config import Config, ConfigError, StartError
from penstock.server.run import run
from penstock.server.sources import load
from penstock.server.systemd import READY, notify
from penstock.server.workers import run_workers

from . import output
from .options import folders, output_option


@click.command("serve")
@click.option(
    "--data", metavar="DIR", shell_complete=folders, help="Folder of the messages [./penstock-data]."
)
@click.option(
    "--http", metavar="HOST:PORT", help="Where to listen; port 0 picks a free one [127.0.0.1:8080]."
)
@click.option(
    "--pulsar",
    metavar="HOST:PORT",
    help="Where Pulsar's protocol is spoken; off: nowhere [127.0.0.1:6650].",
)
@click.option(
    "--engine",
    metavar="URL",
    help="Stand before a cluster of Apache Pulsar or Apache Kafka: pulsar://HOST:PORT[,HOST:PORT], kafka://HOST:PORT.",
)
@click.option("--admin", metavar="URL", help="Where a Pulsar cluster is administered: http://HOST:PORT.")
@click.option(
    "--schema-registry",
    metavar="URL",
    help="Before Kafka: a schema registry with Confluent's API: http://HOST:PORT.",
)
@click.option(
    "--registry",
    metavar="HOST:PORT",
    help="Where the schema registry is served without the prefix /registry [off].",
)
@click.option(
    "--rest-proxy",
    metavar="HOST:PORT",
    help="Where the REST proxy is served without the prefix /rest [off].",
)
@click.option("--memory", is_flag=True, help="Keep everything in memory: gone when the server stops.")
@click.option(
    "--insecure", is_flag=True, help="Serve other machines without authentication, where that is meant."
)
@click.option("--workers", type=click.IntRange(1, 256), help="Processes of this server [1].")
@click.option("--worker", type=int, hidden=True, help="Which of several workers this is.")
@click.option("--owner", hidden=True, help="Where the process that owns the log serves its workers.")
@click.option("--log", metavar="FORMAT", help="auto, json or console [auto].")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="PENSTOCK_CONFIG",
    help="A TOML file with any of the settings of docs/configuration.md.",
)
@click.option(
    "--set",
    "settings",
    metavar="SECTION.KEY=VALUE",
    multiple=True,
    help="Any setting; may be repeated.",
)
@click.option(
    "--check",
    "only_check",
    is_flag=True,
    help="Say whether a start would succeed (in the form of -o), and start nothing.",
)
@output_option
def serve_command(
    data: str | None,
    http: str | None,
    pulsar: str | None,
    registry: str | None,
    rest_proxy: str | None,
    engine: str | None,
    admin: str | None,
    schema_registry: str | None,
    memory: bool,
    insecure: bool,
    workers: int | None,
    worker: int | None,
    owner: str | None,
    log: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    only_check: bool,
) -> int:
    """Serve topics over HTTP, WebSocket and Pulsar's protocol until SIGTERM or Ctrl-C."""
    flags: dict[str, object] = {
        "data.folder": data,
        "data.store": "memory" if memory else None,
        "engine.url": engine,
        "engine.admin_url": admin,
        "engine.schema_registry": schema_registry,
        "auth.insecure": insecure or None,
        "http.listen": http,
        "pulsar.listen": pulsar,
        "registry.listen": registry,
        "rest_proxy.listen": rest_proxy,
        "log.format": log,
        "engine.workers": workers,
    }
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator:
            raise click.UsageError(f"--set {setting}: SECTION.KEY=VALUE is expected")
        flags[name.strip()] = value

    def read() -> Config:
        return load(file=file, environment=os.environ, flags=flags)

    try:
        config = read()
        if only_check:
            return _check(config)
        if config.engine.workers > 1 and worker is None and owner is None:
            command = [sys.executable, "-m", "penstock", *sys.argv[1:]]
            run_workers(config, command, config.engine.workers, _ready)
        else:
            access = None if owner is None else WorkerAccess.parse(owner, config.fleet.secret)
            run(config, _ready, read, worker=worker or 0, owner=access)
    except (ConfigError, StartError) as error:
        raise click.ClickException(str(error)) from None
    return 0


def _check(config: Config) -> int:
    """Say what was looked at on stdout, and what is wrong on stderr; the exit code."""
    from penstock.server.check import check  # a server starts without it

    checked = check(config)
    if output.for_people():
        for sentence in checked.right:
            click.echo(sentence)
    else:
        output.line(
            {
                "valid": not checked.wrong,
                "checked": checked.right,
                "problems": checked.wrong,
                "warnings": checked.doubts,
            }
        )
    for sentence in checked.doubts:
        click.echo(f"penstock: warning: {sentence}", err=True)
    for sentence in checked.wrong:
        click.echo(f"penstock: {sentence}", err=True)
    return 1 if checked.wrong else 0


def _ready(*urls: str) -> None:
    """The one line on stdout: programs wait for it."""
    click.echo(f"penstock ready {' '.join(urls)}")
    notify(READY)
