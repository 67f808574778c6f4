"""`penstock pipeline maintain` and `penstock pipeline new archive`: table maintenance, and a file that fills a table."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.logs import look
from penstock.pipeline.options import is_url
from penstock.pipeline.run.preflight import need_extras
from penstock.pipeline.spec.parse import load_spec

from . import output
from .connection import by_reference
from .groups import Group
from .pipeline_group import pipeline_command

if TYPE_CHECKING:
    from penstock.pipeline.lake.store import Location

_SERVER: Final = ("url", "token_file", "token_env", "ca_file", "cert_file", "key_file")  # of [server]

_storage = click.option(
    "--storage",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of the table's object store; VALUE env:VARIABLE is looked up.",
)


@pipeline_command.command()
@click.argument("file", required=False, type=click.Path(dir_okay=False))
@click.option("--table", metavar="PATH", help="A table of no pipeline: its folder, or its URL (s3://…).")
@_storage
@click.option("--vacuum-hours", type=click.IntRange(0), default=168, show_default=True)
@click.option("--seconds", type=click.FloatRange(0), default=3600.0, show_default=True)
def maintain(
    file: str | None, table: str | None, storage: tuple[str, ...], vacuum_hours: int, seconds: float
) -> None:
    """Compact and vacuum the tables that FILE writes to, or one table.

    Files that newer versions replaced stay for --vacuum-hours. No further partition is begun after --seconds. The
    pipeline may run.
    """
    need_extras(tables=True)
    from penstock.pipeline.lake.delta import Table
    from penstock.pipeline.lake.maintenance import maintain as maintain_table
    from penstock.pipeline.lake.options import snapshot_of
    from penstock.pipeline.lake.store import Location

    if (file is None) == (table is None):
        raise PipelineError("either FILE or --table is needed")
    if file is not None:
        spec = load_spec(file)
        folders = [Location.of(sink.path, spec.storage) for sink in spec.sinks.values() if sink.path]
    else:
        folders = [Location.of(table or "", named_values("--storage", storage))]
        snapshot_of(folders[0])
    reports = [
        maintain_table(Table(folder), vacuum_hours=vacuum_hours, seconds_max=seconds) for folder in folders
    ]
    columns = ("table", "compacted", "deleted", "left", "errors")
    found = ({name: getattr(report, name) for name in columns} for report in reports)
    output.rows(columns, found, "the pipeline has no tables")


@pipeline_command.group(cls=Group)
def new() -> None:
    """Write a pipeline's file, to run or to change."""


@new.command()
@click.argument("topics", nargs=-1, required=True)
@click.option("--table", required=True, metavar="PATH", help="The table's folder, or its URL (s3://…).")
@_storage
@click.option("--decode", type=click.Choice(["none", "struct", "flat"]), default="none", show_default=True)
@click.option("--partition-by", default="day(timestamp)", show_default=True)
@click.option(
    "--file", type=click.Path(dir_okay=False), help="Where to write it. [default: TABLE's name.toml]"
)
@by_reference
def archive(
    topics: tuple[str, ...],
    table: str,
    storage: tuple[str, ...],
    decode: str,
    partition_by: str,
    file: str | None,
    server: Access,
) -> None:
    """A pipeline that keeps TOPICS as a table: all messages, all columns.

    It continues at the end of an archive in the same table.
    """
    need_extras(tables=True)
    from penstock.pipeline.lake.options import table_at
    from penstock.pipeline.lake.store import Location
    from penstock.pipeline.rows.columns import INCLUDABLE

    names = [TopicName.parse(topic) for topic in topics]
    options = named_values("--storage", storage)
    folder = Location.of(table, options)
    table_at(folder)
    path = Path(file or f"{folder.name}.toml")
    start = _ends(server, folder, names)
    lines = [
        f"name = {_text(f'archive-{folder.name}')}",
        "",
        "[server]",
        *(f"{name} = {_text(text)}" for name in _SERVER if (text := _placed(name, getattr(server, name)))),
        "",
        "[sources.messages]",
        f"topics = [{', '.join(_text(str(name)) for name in names)}]",
        f"include = [{', '.join(map(_text, INCLUDABLE))}]",
    ]
    if decode != "none":
        lines += [f"decode = {_text(decode)}"]
    if start:
        lines += [
            "# The end of what the table has. Partitions that are not named begin with their first message."
        ]
        lines += [f"start = {{ {', '.join(start)} }}"]
    lines += [
        "",
        "[sinks.table]",
        'input = "messages"',
        f"path = {_text(folder.url)}",
        f"partition_by = [{', '.join(_text(part.strip()) for part in partition_by.split(',') if part.strip())}]",
        "archive = true",
    ]
    if options:
        lines += ["", "[storage]", *(f"{name} = {_text(text)}" for name, text in options.items())]
    try:
        with path.open("x", encoding="utf-8") as written:
            written.write("\n".join(lines) + "\n")
    except FileExistsError:
        raise PipelineError(
            f"{path} exists already; --file names another", ErrorKind.ALREADY_EXISTS
        ) from None
    load_spec(path)
    output.done(f"wrote {path}: penstock pipeline run {path}", file=str(path))


def _ends(server: Access, folder: "Location", topics: Sequence[TopicName]) -> list[str]:
    """The end of a table's archive, as keys and values of TOML. Raises PipelineError for a topic that does not exist, or that
    was created again since it was archived."""
    from penstock.pipeline.lake.options import is_table, snapshot_of

    with HttpClient(server) as client:
        found = look(client, topics)
    if found.missing:
        raise PipelineError(f"topic {found.missing[0]} does not exist", ErrorKind.TOPIC_NOT_FOUND)
    now = snapshot_of(folder) if is_table(folder) else None
    ends: dict[str, list[str]] = {}
    for log in found.logs or []:
        position = now.position(log.topic, log.partition) if now is not None else None
        if position is None:
            continue
        if position.ledger not in (-1, log.ledger):
            raise PipelineError(
                f"{log.topic}, partition {log.partition}: the topic was deleted and created again since it was archived;"
                " archive it into another table",
                ErrorKind.ALREADY_EXISTS,
            )
        ends.setdefault(log.topic, []).append(f"{log.partition} = {position.end}")
    return [f"{_text(topic)} = {{ {', '.join(offsets)} }}" for topic, offsets in ends.items()]


def _placed(name: str, text: str) -> str:
    """A setting of [server]: files by their absolute paths."""
    return str(Path(text).absolute()) if text and name.endswith("_file") and not is_url(text) else text


def _text(text: str) -> str:
    """A string of TOML."""
    return json.dumps(text, ensure_ascii=False)


def named_values(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Values by name."""
    pairs = [text.partition("=") for text in texts]
    if wrong := [name for name, separator, _ in pairs if not (name and separator)]:
        raise PipelineError(f"{option}: {wrong[0]!r} is not NAME=VALUE")
    return {name: value for name, _, value in pairs}
