"""The sources of a configuration: defaults < TOML file < environment < flags.

Every value is checked by itself, so that a refusal can name its key and its origin.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, get_origin

import msgspec

from penstock.model.secret import MASK, Secret

from .config import OFF, Config, ConfigError, advertised, check_origin, host_and_port
from .forwarded import TrustedProxies

PREFIX: Final = "PENSTOCK_"
INTEGER_MAX: Final = 2**53  # what JSON carries everywhere
SIZE_MAX_LEAST: Final = 128 * 1024 * 1024  # of a storage that has a bound

# Variables that belong to the command line's client side, not to the server.
_CLIENT: Final = frozenset(
    (
        "PENSTOCK_URL",
        "PENSTOCK_TOKEN",
        "PENSTOCK_TOKEN_FILE",
        "PENSTOCK_TLS_CA_FILE",
        "PENSTOCK_TLS_CERT_FILE",
        "PENSTOCK_TLS_KEY_FILE",
        "PENSTOCK_CONFIG",
    )
)
# Kubernetes tells every container about a service named `penstock` in variables of these shapes.
_SERVICE_LINK: Final = re.compile(r"PENSTOCK_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")


class Setting(NamedTuple):
    """One value, not yet checked, and its source. A `text` is converted to a number or a boolean later."""

    section: str
    key: str
    value: object
    origin: str
    text: bool


def load(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Config:
    """Assemble a configuration; `flags` are `section.key` with None for one not given. Raises ConfigError."""
    chosen: dict[str, dict[str, Any]] = {}
    for setting in _settings(file, environment or {}, flags or {}):
        chosen.setdefault(setting.section, {})[setting.key] = _checked(setting)
    return Config(**{name: type(getattr(Config(), name))(**values) for name, values in chosen.items()})


def settings_of(config: Config, sections: Mapping[str, Mapping[str, object]], origin: str) -> Config:
    """A configuration with other values of some keys, by section; `origin` names their source. Raises ConfigError."""
    changed: dict[str, Any] = {}
    for section, values in sections.items():
        _check_section(section, f"from {origin}")
        given = {key: _checked(Setting(section, key, value, origin, False)) for key, value in values.items()}
        changed[section] = msgspec.structs.replace(getattr(config, section), **given)
    return msgspec.structs.replace(config, **changed)


def _settings(
    file: Path | None, environment: Mapping[str, str], flags: Mapping[str, object]
) -> Iterator[Setting]:
    if file is not None:
        yield from _from_file(file)
    yield from _from_environment(environment)
    for name, value in flags.items():
        if value is not None:
            section, _, key = name.partition(".")
            yield Setting(section, key, value, "the command line", isinstance(value, str))


def _from_file(file: Path) -> Iterator[Setting]:
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    for section, values in content.items():
        if not isinstance(values, dict):
            raise ConfigError(f"unknown key {section!r} in {file}: keys belong in a section like [http]")
        for key, value in values.items():
            yield Setting(section, key, value, str(file), False)


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in _CLIENT or _SERVICE_LINK.fullmatch(name):
            continue
        section, separator, key = name.removeprefix(PREFIX).lower().partition("__")
        if not separator:
            raise ConfigError(
                f"unknown variable {name} in the environment: PENSTOCK_SECTION__KEY is expected, "
                "with two underscores between section and key"
            )
        yield Setting(section, key, environment[name], f"{name} in the environment", True)


def _checked(setting: Setting) -> object:
    """The value as its key's type; raises ConfigError."""
    where = f"from {setting.origin}"
    _check_section(setting.section, where)
    section = getattr(Config(), setting.section)
    name = f"{setting.section}.{setting.key}"
    fields = {field.name: field for field in msgspec.structs.fields(section)}
    field = fields.get(setting.key)
    if field is None:
        raise ConfigError(f"unknown key {name!r} {where}; there are {', '.join(fields)}")
    try:
        given = _structured(setting.value, field.type) if setting.text else setting.value
        value: object = msgspec.convert(given, field.type, strict=not setting.text, dec_hook=_own_types)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        shown = MASK if field.type is Secret else repr(setting.value)
        raise ConfigError(f"bad value {shown} for {name!r} {where}: {error}") from None
    problem = _problem(name, value, field.default)
    if problem is not None:
        raise ConfigError(f"bad value {setting.value!r} for {name!r} {where}: {problem}")
    return value


def _check_section(name: str, where: str) -> None:
    if name not in Config.__struct_fields__:
        known = ", ".join(Config.__struct_fields__)
        raise ConfigError(f"unknown section {name!r} {where}; there are {known}")


def _structured(text: object, type: Any) -> object:
    """A text of the environment or a flag as a list (commas between) or a table (JSON), if expected."""
    if isinstance(text, str):
        if get_origin(type) is tuple and not text.lstrip().startswith("["):
            return [part.strip() for part in text.split(",") if part.strip()]
        if get_origin(type) in (tuple, dict):
            return msgspec.json.decode(text)
    return text


def _own_types(type: Any, value: object) -> object:
    """The types of settings that msgspec does not know."""
    if type is Path and isinstance(value, str) and value:
        return Path(value).expanduser()
    if type is Secret and isinstance(value, str):
        return Secret(value)
    raise ValueError("Expected a path" if type is Path else "Expected a text")


def _problem(name: str, value: object, default: object) -> str | None:
    """What the types do not say."""
    if isinstance(value, int) and not isinstance(value, bool):
        least = -1 if default == -1 else 0 if default == 0 or name in _MAY_BE_ZERO else 1
        if not least <= value <= INTEGER_MAX:
            return f"must be within {least} and {INTEGER_MAX}"
    if name == "storage.size_max_bytes" and isinstance(value, int) and 0 < value < SIZE_MAX_LEAST:
        return (
            f"must be 0, or at least {SIZE_MAX_LEAST}: the write-ahead log and the reserves need a part of it"
        )
    try:
        if name in _ADDRESSES and value not in (OFF, ""):
            host_and_port(str(value))
        elif name == "http.advertise" and value:
            advertised(str(value), "http")
        elif name == "http.allowed_origins" and isinstance(value, tuple):
            for origin in value:
                check_origin(origin)
        elif name == "http.trusted_proxies" and isinstance(value, tuple):
            TrustedProxies(value)
    except ValueError as error:
        return str(error)
    return None


_MAY_BE_ZERO: Final = frozenset(
    (
        "http.websocket_ping_s",
        "http.drain_ms",
        "broker.cursor_flush_ms",
        "broker.tail_bytes",
        "broker.max_producers_per_topic",
        "broker.max_consumers_per_topic",
        "broker.max_consumers_per_subscription",
        "broker.max_subscriptions_per_topic",
        "broker.max_topics_per_namespace",
        "storage.reserve_bytes",
        "broker.quota_hold_ms",
        "broker.producer_memory_minutes",
        "limits.websocket_idle_ms",
        "tls.reload_ms",
        "auth.leeway_s",
    )
)
_ADDRESSES: Final = frozenset(
    ("http.listen", "http.tls_listen", "pulsar.listen", "pulsar.tls_listen", "fleet.listen")
)
