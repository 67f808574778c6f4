"""The server's credentials for the cluster. Passwords, secrets and certificates in files are read again when the files change."""

import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.settings import ClusterSettings
from penstock.model.errors import ErrorKind, PenstockError

from .config import OAUTHBEARER, TLS, properties

if TYPE_CHECKING:
    from .endpoint import TokenEndpoint

log = logging.getLogger(__name__)

Stamp = tuple[tuple[int, int, int] | None, ...]

_CERTIFICATES: Final = ("tls_trust_file", "tls_cert_file", "tls_key_file")


class Credentials:
    """Raises BAD_PARAMETER for settings that cannot be used. Files are first read when a client is made."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._properties = properties(settings)
        self._endpoint: TokenEndpoint | None = None
        if settings.sasl_mechanism == OAUTHBEARER:
            from . import endpoint  # others start without an HTTP server

            self._endpoint = endpoint.TokenEndpoint.of(settings)
        self._password: str | None = None
        self._password_stamp: Stamp = ()
        files = [getattr(settings, key) for key in _CERTIFICATES if settings.url.startswith(TLS)]
        self._certificates = [file for file in files if file]
        self._certificates_stamp = _stamp(self._certificates)

    def properties(self) -> dict[str, Any]:
        """librdkafka's properties for a client with the current credentials; raises UNAVAILABLE if a file cannot be read."""
        found = dict(self._properties)
        if self._settings.username:
            found["sasl.password"] = self.password
        if self._endpoint is not None:
            found |= self._endpoint.properties()
        return found

    @property
    def password(self) -> str:
        """The password as last read; raises UNAVAILABLE."""
        if self._password is None:
            try:
                self._password = self._read_password()
            except OSError as error:
                raise PenstockError(
                    ErrorKind.UNAVAILABLE, f"engine.password_file cannot be read: {error}"
                ) from None
        return self._password

    def _read_password(self) -> str:
        """Raises OSError."""
        file = self._settings.password_file
        if not file:
            return self._settings.password.reveal()
        self._password_stamp = _stamp([file])
        try:
            return Path(file).read_text("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise OSError(f"{file} is not UTF-8: {error.reason}") from None

    @property
    def principal(self) -> str | None:
        """The principal that brokers see unless they map names; None if only the brokers know it. Blocks; raises UNAVAILABLE."""
        if self._settings.username:
            return f"User:{self._settings.username}"
        if self._endpoint is not None:
            return f"User:{self._endpoint.subject}"
        if self._settings.tls_cert_file and self._settings.url.startswith(TLS):
            return None  # the certificate's name, as the brokers' rules map it
        return "User:ANONYMOUS"

    # -- changes of the files; called on a thread

    def password_changed(self) -> bool:
        """Read the password again if its file changed; returns whether it is another one."""
        file = self._settings.password_file
        if not file or self._password is None or _stamp([file]) == self._password_stamp:
            return False
        try:
            now = self._read_password()
        except OSError as error:
            log.warning("the password for Kafka cannot be read", extra={"reason": str(error)})
            return False
        if not now or now == self._password:  # empty: it is being written
            return False
        self._password = now
        return True

    def certificates_changed(self) -> bool:
        """Whether the certificates changed and can be used."""
        stamp = _stamp(self._certificates)
        if stamp == self._certificates_stamp:
            return False
        self._certificates_stamp = stamp
        settings = self._settings
        try:
            context = ssl.create_default_context(cafile=settings.tls_trust_file or None)
            if settings.tls_cert_file:
                context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file or None)
        except (OSError, ssl.SSLError) as error:  # such as a certificate whose key is still to come
            log.warning("the certificates for Kafka cannot be used yet", extra={"reason": str(error)})
            return False
        return True

    def close(self) -> None:
        """Blocks for up to half a second."""
        if self._endpoint is not None:
            self._endpoint.close()


def _stamp(files: list[str]) -> Stamp:
    """A value that changes when a file is written or replaced, also through a link; None for a missing file."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            status = Path(file).stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
