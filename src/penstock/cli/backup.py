"""`penstock backup FILE` and `penstock restore FILE`: the data folder's storage, copied whole."""

from datetime import UTC, datetime
from pathlib import Path

import click

from penstock.engines.storage import FILE_NAME, copy
from penstock.engines.storage import restore as put_back
from penstock.model.errors import ErrorKind, PenstockError

from . import output
from .progress import progress

data_option = click.option(
    "--data",
    "folder",
    envvar="PENSTOCK_DATA__FOLDER",
    default=Path("penstock-data"),
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="The data folder. [env: PENSTOCK_DATA__FOLDER]",
)


@click.command("backup")
@click.argument("target", type=click.Path(path_type=Path))
@data_option
def command(target: Path, folder: Path) -> None:
    """Copy everything as of now to the file TARGET, or to a file named by the time in the folder TARGET.

    The server may run meanwhile; it goes on. To be called where the data folder is.
    """
    file = folder / FILE_NAME
    if not file.is_file():
        raise PenstockError(ErrorKind.NOT_FOUND, f"there is no storage at {file}: --data names its folder")
    if target.is_dir():
        target /= f"penstock-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.db"
    with progress() as told:
        copy(file, target, lambda done, total: told("pages", done, total))
    size = target.stat().st_size
    output.done(f"{target}: {size:,} bytes", file=str(target), bytes=size)


@click.command("restore")
@click.argument("backup", type=click.Path(path_type=Path))
@data_option
@click.option("--force", is_flag=True, help="Give up what is in the folder.")
def restore(backup: Path, folder: Path, force: bool) -> None:
    """Make the file BACKUP the content of the data folder, which no server may use meanwhile."""
    put_back(backup, folder, FILE_NAME, force=force)
    output.done(f"{folder} is as {backup} has it", folder=str(folder), backup=str(backup))
