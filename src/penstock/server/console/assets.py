"""The console's files: read once from the package, and served with what lets a browser keep them."""

import gzip
import mimetypes
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import msgspec

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.http.answers import Header
from penstock.protocols.http.exchange import Exchange

STATIC: Final = "/console/static/"
GZIP_FROM: Final = 1024  # bytes; shorter files are sent as they are

# Everything comes from this server. No inline code: what a message holds cannot become a script.
POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    b" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY: Final[tuple[Header, ...]] = (
    (b"content-security-policy", POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
_TYPES: Final = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


class _File(msgspec.Struct, frozen=True):
    kind: bytes
    tag: bytes
    body: bytes
    packed: bytes  # by gzip; empty if that does not pay


class Assets:
    """Serves `/console` and the files below `/console/static/`. A file is read when it is first asked for."""

    def __init__(self) -> None:
        self._root = files(__package__) / "static"
        self._files: dict[str, _File] = {}

    async def page(self, exchange: Exchange) -> None:
        """The page itself; which view it shows is in the fragment of its URL."""
        await self._send(exchange, self._file("index.html"))

    async def file(self, exchange: Exchange, path: str) -> None:
        """A file below `/console/static/`; raises NOT_FOUND."""
        await self._send(exchange, self._file(path))

    def _file(self, path: str) -> _File:
        found = self._files.get(path)
        if found is None:
            found = self._files[path] = _read(self._root, path)
        return found

    async def _send(self, exchange: Exchange, file: _File) -> None:
        # `no-cache`: the browser asks each time whether the file is still the same, so that an upgrade is seen at once.
        headers = [
            *SECURITY,
            (b"etag", file.tag),
            (b"cache-control", b"no-cache"),
            (b"vary", b"Accept-Encoding"),
        ]
        if file.tag.decode() in (exchange.header(b"if-none-match") or ""):
            await exchange.whole(304, headers, None)
            return
        headers.append((b"content-type", file.kind))
        body = file.body
        if file.packed and "gzip" in (exchange.header(b"accept-encoding") or ""):
            headers.append((b"content-encoding", b"gzip"))
            body = file.packed
        await exchange.whole(200, headers, body)


def _read(root: Traversable, path: str) -> _File:
    """A file of the package; raises NOT_FOUND, also for what is outside of it."""
    parts = path.split("/")
    if any(part in ("", ".", "..") or part.startswith(".") for part in parts):
        raise PenstockError(ErrorKind.NOT_FOUND, "there is no such file")
    place = root.joinpath(*parts)
    if not place.is_file():
        raise PenstockError(ErrorKind.NOT_FOUND, "there is no such file")
    body = place.read_bytes()
    suffix = "." + path.rpartition(".")[2]
    kind = _TYPES.get(suffix) or mimetypes.guess_type(path)[0] or "application/octet-stream"
    packed = gzip.compress(body, mtime=0) if len(body) >= GZIP_FROM else b""
    return _File(kind.encode(), f'"{sha256(body).hexdigest()[:20]}"'.encode(), body, packed)
