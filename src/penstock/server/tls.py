"""The server's certificates, read again when their files change.

A listener is given one context for good. It hands every handshake to the context of the newest files, so that a
change closes no connection and misses none; what a broken file would be is never used.
"""

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .config import StartError, TlsSettings

log = logging.getLogger(__name__)

ALPN: Final = "http/1.1"

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_DEMANDS: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}

# OpenSSL's words for a key that is another's: one of the same kind, and one of another.
_OTHER_KEY: Final = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")

# What a set of files looked like: for each its path, modification time, size and inode, or None if it is not.
Seen = tuple[tuple[str, int, int, int] | None, ...]


class Certificates:
    """The contexts of one server: `context()` makes one for a listener, `refresh` keeps all of them up to date."""

    def __init__(self, settings: TlsSettings, clock: Callable[[], float] = time.monotonic) -> None:
        """Read the files; raises StartError, naming the option, if they are invalid."""
        self._clock = clock
        self._listeners: list[_Listener] = []
        self.settings = settings
        self.prepare(settings)()

    def context(self, *protocols: str) -> ssl.SSLContext:
        """A listener's context, that speaks the application `protocols` (ALPN)."""
        listener = _Listener(self, protocols)
        self._listeners.append(listener)
        return listener.context

    def prepare(self, settings: TlsSettings) -> Callable[[], None]:
        """Read the files that the settings name; what takes them into use. Raises StartError, naming the option."""
        _check_settings(settings)
        seen = _look(settings)
        try:
            _make(settings, ())
            made = [_make(settings, listener.protocols) for listener in self._listeners]
        except (OSError, ssl.SSLError, ValueError) as error:
            raise StartError(f"tls.cert_file, key_file or client_ca_file: {_why(error)}") from None

        def use() -> None:
            self.settings, self._seen, self._looked = settings, seen, self._clock()
            for listener, context in zip(self._listeners, made, strict=True):
                listener.current = context

        return use

    def refresh(self) -> None:
        """Take new files into use, if there are any; invalid ones are logged once and ignored."""
        now = self._clock()
        if (now - self._looked) * 1000 < self.settings.reload_ms:
            return
        self._looked = now
        seen = _look(self.settings)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            made = [_make(self.settings, listener.protocols) for listener in self._listeners]
        except (OSError, ssl.SSLError, ValueError) as error:
            log.error("new certificates cannot be used; those before stay", extra={"reason": _why(error)})
            return
        for listener, context in zip(self._listeners, made, strict=True):
            listener.current = context
        log.info("new certificates", extra={"file": self.settings.cert_file})


class _Listener:
    """A listener's context, and the one its handshakes go on with."""

    def __init__(self, certificates: Certificates, protocols: tuple[str, ...]) -> None:
        self.protocols = protocols
        self.context = self.current = _make(certificates.settings, protocols)
        self._certificates = certificates
        # Called at every ClientHello, also at those that name no server.
        self.context.sni_callback = self._hello

    def _hello(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext) -> None:
        self._certificates.refresh()
        if self.current is not self.context:
            connection.context = self.current


def _make(settings: TlsSettings, protocols: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.min_version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    for name in _files(settings):
        if name:
            Path(name).open("rb").close()  # the library does not say which file cannot be read
    try:
        context.load_cert_chain(settings.cert_file, settings.key_file or None, password=_no_password)
    except ssl.SSLError as error:
        if error.reason not in _OTHER_KEY:
            raise
        key = settings.key_file or settings.cert_file
        raise ValueError(
            f"the key in {key} does not belong to the certificate in {settings.cert_file}"
        ) from None
    if settings.client_certificates != "none":
        context.load_verify_locations(settings.client_ca_file)
        context.verify_mode = _DEMANDS[settings.client_certificates]
        # A resumed session is not verified again: no sessions, so that a removed CA does not go on counting.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    if protocols:
        context.set_alpn_protocols(list(protocols))
    return context


def _check_settings(settings: TlsSettings) -> None:
    if not settings.cert_file:
        raise StartError("tls.cert_file is needed for http.tls_listen and pulsar.tls_listen")
    if settings.client_certificates != "none" and not settings.client_ca_file:
        raise StartError(
            f"tls.client_ca_file is needed for tls.client_certificates = {settings.client_certificates!r}"
        )


def _look(settings: TlsSettings) -> Seen:
    return tuple(_stat(name) for name in _files(settings))


def _files(settings: TlsSettings) -> tuple[str, ...]:
    return settings.cert_file, settings.key_file, settings.client_ca_file


def _stat(name: str) -> tuple[str, int, int, int] | None:
    if not name:
        return None
    try:
        found = Path(name).stat()
    except OSError:
        return None
    return name, found.st_mtime_ns, found.st_size, found.st_ino


def _no_password() -> str:
    raise ValueError("the key is encrypted, and the server cannot ask for its password")


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason.replace("_", " ").lower() if error.reason else str(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error)
