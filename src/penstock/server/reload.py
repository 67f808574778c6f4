"""A configuration read again while the server runs (SIGHUP): what can change does, all of it or nothing."""

import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from penstock.protocols.auth.authenticator import Auth, authenticator
from penstock.protocols.auth.settings import AuthConfigError

from .app import App
from .config import Config, ConfigError, StartError
from .http import HttpServer
from .listeners import Listeners
from .logs import configure
from .resources import allow_connections

log = logging.getLogger(__name__)

# Sections that are read again, but for these keys. Everything else counts from the next start on.
RELOADED: Final = {
    "limits": frozenset[str](),
    "log": frozenset[str](),
    "auth": frozenset(("enabled", "insecure")),
    "tls": frozenset(("handshake_ms",)),
}


class Reload:
    """Of one server. `read` reads the configuration as at the start: the same file, environment and flags."""

    def __init__(
        self, config: Config, read: Callable[[], Config], app: App, http: HttpServer, listeners: Listeners
    ) -> None:
        self._config = config  # what counts
        self._read = read
        self._app = app
        self._http = http
        self._listeners = listeners

    def run(self) -> None:
        """Read the configuration, the certificates, keys and users again. A broken file is logged and changes
        nothing at all; this never raises."""
        try:
            self._reload()
        except (ConfigError, AuthConfigError, StartError) as error:
            log.error("the configuration is not read again; the one before counts: %s", error)
        except Exception:
            log.exception("the configuration is not read again; the one before counts")

    def _reload(self) -> None:
        new = self._read()
        changed, waiting = _differences(self._config, new)
        config = _merged(self._config, new)
        context = self._app.context
        # Whatever may fail comes first.
        certificates = self._listeners.prepare(config.tls)
        auth = _authenticator(config, self._app)
        # From here on nothing can.
        configure(config.log)
        self._app.requests.log_access = config.log.access
        if certificates is not None:
            certificates()
        context.apply_limits(config.limits)
        self._http.apply_limits(config.limits)
        allow_connections(config.limits.max_connections)
        if auth is not None:
            context.apply_auth(auth)
        self._config = config
        log.info("read the configuration again", extra={"changed": changed})
        if waiting:
            log.warning("changed, and counts from the next start on", extra={"keys": waiting})


def _authenticator(config: Config, app: App) -> Auth | None:
    listeners = app.context.broker.namespaces.listeners
    before = list(listeners)
    try:
        return authenticator(config.auth, app.context.broker)
    except BaseException:
        listeners[:] = before  # permissions that are not to count listen to nothing
        raise


def _reloads(section: str, key: str) -> bool:
    return section in RELOADED and key not in RELOADED[section]


def _differences(old: Config, new: Config) -> tuple[list[str], list[str]]:
    """The names of the keys that change, and of those that would."""
    changed: list[str] = []
    waiting: list[str] = []
    for section in Config.__struct_fields__:
        before, after = getattr(old, section), getattr(new, section)
        for key in before.__struct_fields__:
            if getattr(before, key) != getattr(after, key):
                (changed if _reloads(section, key) else waiting).append(f"{section}.{key}")
    return changed, waiting


def _merged(old: Config, new: Config) -> Config:
    """`new` if it can take effect now, else `old`."""
    sections: dict[str, Any] = {}
    for section in RELOADED:
        before, after = getattr(old, section), getattr(new, section)
        kept = {key: getattr(before, key) for key in RELOADED[section]}
        sections[section] = msgspec.structs.replace(after, **kept)
    return msgspec.structs.replace(old, **sections)
