"""How a server is reached over HTTP: its address, which client asks, and which certificates to trust. It can be pickled.

Tokens travel by reference (a file, an environment variable), so that neither a plan nor a log of Spark's, nor
data sent to its workers, holds one.
"""

import os
import re
import ssl
from base64 import b64encode
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from penstock.model.errors import ErrorKind, PenstockError

TOKEN_BYTES_MAX: Final = 64 << 10

# Also in texts that are not URLs, as errors show them.
_PASSWORD: Final = re.compile(r"^(\s*(?:[A-Za-z][-+.A-Za-z0-9]*://)?[^:/?#@]*):[^/?#]+@")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """A server's URL and credentials; an empty text is none.

    `token` is for callers that hold one already (the command line); elsewhere `token_file` or `token_env` name it, and it
    is read for each request. `basic_env` names a variable with USER:PASSWORD, which is sent instead. `ca_file` are the
    certificates to trust instead of the system's; `cert_file` and `key_file` are the client's own (PEM). `original_principal`
    names the principal that a proxy acts for.
    """

    url: str
    token: str = ""
    token_file: str = ""
    token_env: str = ""
    basic_env: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    original_principal: str = ""

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            _ = parts.port
        except ValueError:  # an unclosed bracket, a port that is not a number
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            shown = without_password(self.url)
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"{shown!r} is no address like http://127.0.0.1:8080"
            )
        # With its scheme in small letters: that decides whether certificates are checked.
        msgspec.structs.force_setattr(self, "url", parts.geturl().rstrip("/"))

    def bearer(self) -> str:
        """The token, or nothing. Raises UNAUTHENTICATED if the named one does not exist."""
        if self.token_file:
            try:
                with Path(self.token_file).open(encoding="utf-8") as file:
                    return file.read(TOKEN_BYTES_MAX).strip()
            except (OSError, UnicodeDecodeError) as error:
                raise PenstockError(
                    ErrorKind.UNAUTHENTICATED, f"the token file {self.token_file} cannot be read: {error}"
                ) from None
        if self.token_env:
            if not os.environ.get(self.token_env):
                raise PenstockError(
                    ErrorKind.UNAUTHENTICATED, f"the environment variable {self.token_env} holds no token"
                )
            return os.environ[self.token_env].strip()
        return self.token

    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        token = self.bearer()
        if not token.isascii():
            raise PenstockError(ErrorKind.UNAUTHENTICATED, "the token is none: it has letters beyond ASCII")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if self.basic_env:
            pair = os.environ.get(self.basic_env, "").strip()  # a file that it came from ends with a line
            if ":" not in pair:
                raise PenstockError(
                    ErrorKind.UNAUTHENTICATED,
                    f"the environment variable {self.basic_env} holds no USER:PASSWORD",
                )
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        if self.original_principal:
            headers["X-Original-Principal"] = self.original_principal
        return headers

    def tls(self) -> ssl.SSLContext | None:
        """The trusted certificates, and our own; None for plain HTTP. Raises BAD_PARAMETER for files without certificates."""
        if not self.url.startswith("https://"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file or None)
        except (OSError, ssl.SSLError) as error:
            named = ", ".join(name for name in (self.ca_file, self.cert_file, self.key_file) if name)
            raise PenstockError(
                ErrorKind.BAD_PARAMETER, f"certificates ({named}) cannot be read: {error}"
            ) from None
        return context


def without_password(url: str) -> str:
    """A URL as messages show it: of `user:password@`, the user is left."""
    return _PASSWORD.sub(r"\1:…@", url)
