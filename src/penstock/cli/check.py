"""`penstock check FOLDER`."""

from pathlib import Path

import click
import msgspec

from penstock.engines.embedded.sqlite.check import Report, check
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.wire.contents import is_sealed, parse
from penstock.wire.entry import WireFormat

from . import output
from .progress import progress


@click.command("check")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON also on a terminal.")
def command(folder: Path, as_json: bool) -> int:
    """Look through a data FOLDER, or a backup, and say what is wrong with it; exit code 1 when something is.

    Nothing is changed, and the server may run meanwhile.
    """
    formats = WireFormat()
    with progress() as told:
        report = check(folder, lambda entry: decode(formats, entry), told)
    if as_json or not output.for_people():
        output.line({**msgspec.to_builtins(report), "sound": report.sound})
    else:
        _say(report)
    return 0 if report.sound else 1


def decode(formats: WireFormat, entry: Entry) -> None:
    """Raise unless the entry's checksum is right, it can be understood, and has the messages that it counts."""
    metadata, _ = parse(entry.data)
    messages = formats.decode(entry)
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
