"""What `produce` was given, in pieces: the values of its command line, the lines of files and of stdin, or whole files.

Lines are handed on as they arrive: those of a slow pipe wait for no others, and those of a file come many at once.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import click

STDIN: Final = "-"
READ_BYTES: Final = 256 << 10  # at once
PIECE_BYTES_MAX: Final = (
    64 << 20
)  # far more than a message may have; a file without line ends is not read into memory


class Pieces(NamedTuple):
    """Pieces of one source that are there together. `what` one is called and the number of the first are for errors."""

    what: str
    first: int
    contents: Sequence[bytes]

    def named(self, place: int) -> str:
        """The piece at a place, for people: `line 3 of FILE`."""
        return self.what.format(self.first + place)


def pieces(
    values: Sequence[str], files: Sequence[str], *, whole: bool, bare: bool = False
) -> Iterator[Pieces]:
    """Each of `values`, then the content of `files`; stdin for `-`, and without either.

    `bare` lines end at the line feed: a carriage return before it is theirs.
    Raises at once for a file that cannot be read, before anything of the others is published.
    """
    for source in files:
        if source != STDIN:
            _check(source)
    return _pieces(values, files, whole=whole, end=b"" if bare else b"\r")


def _check(source: str) -> None:
    """Raises for a file that cannot be read. A pipe is not opened: its writer would see the end."""
    try:
        pipe = Path(source).is_fifo()
    except OSError as error:
        raise _unreadable(source, error) from None
    if not pipe:
        _opened(source)[0].close()


def _pieces(values: Sequence[str], files: Sequence[str], *, whole: bool, end: bytes) -> Iterator[Pieces]:
    sources = [*values, *files] or [STDIN]
    for number, source in enumerate(sources, 1):
        if source != STDIN and number <= len(values):
            yield Pieces("value {}", number, [os.fsencode(source)])
            continue
        stream, name = _opened(source)
        with stream:
            try:
                yield from _whole(stream, name) if whole else _lines(stream, name, end)
            except OSError as error:
                raise _unreadable(source, error) from None


def _opened(source: str) -> tuple[BinaryIO, str]:
    if source == STDIN:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb"), "stdin"
    try:
        return Path(source).open("rb"), source.replace("{", "{{").replace("}", "}}")
    except OSError as error:
        raise _unreadable(source, error) from None


def _whole(stream: BinaryIO, name: str) -> Iterator[Pieces]:
    content = stream.read(PIECE_BYTES_MAX + 1)
    if len(content) > PIECE_BYTES_MAX:
        raise _too_large(name)
    yield Pieces(name, 1, [content])


def _lines(stream: BinaryIO, name: str, end: bytes) -> Iterator[Pieces]:
    """The lines of a stream without their ends, as many as came with one read; `end` before a line feed does not belong to them."""
    what = "line {} of " + name
    number, size = 1, 0
    begun: list[bytes] = []  # of a line whose end is still to come
    while data := stream.read1(READ_BYTES):  # type: ignore[attr-defined]  # BinaryIO knows only read
        head, found, tail = data.rpartition(b"\n")
        if not found:
            begun.append(data)
            size += len(data)
            if size > PIECE_BYTES_MAX:
                raise _too_large(what.format(number))
            continue
        lines = b"".join(chain(begun, (head,))).split(b"\n")
        begun, size = ([tail], len(tail)) if tail else ([], 0)
        yield Pieces(what, number, [line.removesuffix(end) for line in lines])
        number += len(lines)
    if begun:
        yield Pieces(what, number, [b"".join(begun).removesuffix(end)])


def _unreadable(source: str, error: OSError) -> click.ClickException:
    return click.ClickException(f"{source} cannot be read: {error.strerror}")


def _too_large(name: str) -> click.ClickException:
    return click.ClickException(f"{name} has more than {PIECE_BYTES_MAX >> 20} MiB")
