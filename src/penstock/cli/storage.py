"""`penstock backup`, `restore` and `check`: the data folder's storage, copied whole and looked through."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from penstock.engines.storage import FILE_NAME, Report, check, copy, restore
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.wire import entry as wire
from penstock.wire.contents import is_sealed, parse

from . import output
from .options import output_option

_data = click.option(
    "--data",
    "folder",
    envvar="PENSTOCK_DATA__FOLDER",
    default=Path("penstock-data"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The data folder. [env: PENSTOCK_DATA__FOLDER]",
)


@click.command("backup")
@output_option
@click.argument("target", type=click.Path(path_type=Path))
@_data
def backup_command(target: Path, folder: Path) -> None:
    """Copy everything as of now to the file TARGET, or to a file named by the time in the folder TARGET.

    The server may run, and goes on. Call it on the machine of the data folder.
    """
    file = folder / FILE_NAME
    if not file.is_file():
        raise PenstockError(ErrorKind.NOT_FOUND, f"there is no storage at {file}: --data names its folder")
    if target.is_dir():
        target /= f"penstock-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.db"
    with _progress() as progress:
        copy(file, target, lambda done, total: progress("pages", done, total))
    size = target.stat().st_size
    output.done(f"{target}: {size:,} bytes", file=str(target), bytes=size)


@click.command("restore")
@output_option
@click.argument("backup", type=click.Path(path_type=Path))
@_data
@click.option("--force", is_flag=True, help="Give up what is in the folder.")
def restore_command(backup: Path, folder: Path, force: bool) -> None:
    """Make the file BACKUP the content of the data folder, which no server may use during that."""
    restore(backup, folder, FILE_NAME, force=force)
    output.done(f"{folder} is as {backup} has it", folder=str(folder), backup=str(backup))


@click.command("check")
@output_option
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON also on a terminal.")
def check_command(folder: Path, as_json: bool) -> int:
    """Check a data FOLDER, or a backup, and report problems; exit code 1 if there are any.

    Nothing is changed, and the server may run.
    """
    with _progress() as progress:
        report = check(folder, decode, progress)
    if as_json or not output.for_people():
        output.line({**msgspec.to_builtins(report), "sound": report.sound})
    else:
        _say(report)
    return 0 if report.sound else 1


def decode(entry: Entry) -> None:
    """Raise unless the entry's checksum is right, it can be understood, and has the messages that it counts."""
    metadata, _ = parse(entry.data)
    messages = wire.decode(entry)
    if not is_sealed(metadata) and len(messages) != entry.count:
        raise PenstockError(
            ErrorKind.BAD_ENCODING, f"it has {len(messages)} messages, and was stored with {entry.count}"
        )


def _say(report: Report) -> None:
    click.echo(
        f"{report.folder} has {report.topics:,} topics with {report.messages:,} messages in {report.entries:,} "
        f"entries ({report.size_bytes:,} bytes), {report.cursors:,} subscriptions and {report.schemas:,} schemas."
    )
    for finding in report.findings:
        click.echo(f"{finding}.")
    if report.further:
        click.echo(f"… and {report.further:,} more.")
    if report.sound:
        click.echo("Nothing is wrong with it.")
    else:
        count = len(report.findings) + report.further
        click.echo(f"{count:,} thing{'s are' if count > 1 else ' is'} wrong with it.")


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A function for progress (subject, number done, total): a bar on stderr."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what)
            bars.update(tasks[what], completed=done, total=max(1, total))

        yield show
