"""Whether a server could start with a configuration (`penstock serve --check`).

Nothing is written, no port stays taken and no client is let in. The check runs the first steps of a start, by the same code:
it reads certificates, keys and users, and creates the engine without starting it. It asks a Kafka cluster which principals may
write the server's internal topics.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from penstock.engines.opening import check_kafka
from penstock.engines.storage import FILE_NAME, look
from penstock.model.errors import PenstockError
from penstock.protocols.auth.certificates import Validity, validities
from penstock.protocols.auth.settings import AuthConfigError

from .app import build
from .config import OFF, Config, PortTakenError, StartError, host_and_port
from .fleet import open_fleet
from .listeners import SOCKETS, TLS, bind, is_exposed
from .local_secret import secret_file
from .tls import Certificates

SOON: Final = timedelta(days=14)
LAST_PART: Final = 4  # of a short life: certificates of a week are renewed when half of it is over


class Doubt(str):
    """A sentence about what works now, and may not for long."""


def own(setting: str, file: str, beside: str = "") -> Iterator[str]:
    """What there is to say of a certificate that is shown to others: of the first in the file, and those between it and
    its root. Raises StartError if it does not count now."""
    now, found = datetime.now(UTC), _read(file)
    if not found:
        yield _unread(setting, file)
        return
    shown, *between = found
    if _is_wrong(shown, now):
        raise StartError(_said(setting, file, shown, now))
    yield f"{setting}: {file}{beside}, valid until {_shown(shown.ends)}"
    yield from _doubts(setting, file, [shown], now)
    yield from _doubts(setting, file, between, now)


def trusted(setting: str, file: str) -> Iterator[str]:
    """Warnings about trusted certificates. Raises StartError if none counts now."""
    now, found = datetime.now(UTC), _read(file)
    if not found:
        yield _unread(setting, file)
        return
    valid = [each for each in found if not _is_wrong(each, now)]
    if not valid:
        others = ", and no other of the file is valid" if len(found) > 1 else ""
        raise StartError(_said(setting, file, max(found, key=lambda each: each.ends), now) + others)
    yield f"{setting}: {file}, valid until {_shown(max(each.ends for each in valid))}"
    yield from _doubts(setting, file, found, now)


def _read(file: str) -> list[Validity]:
    """Those of a file; none if their kind is not supported here."""
    try:
        return validities(Path(file).read_bytes())
    except ValueError:
        return []


def _unread(setting: str, file: str) -> Doubt:
    return Doubt(f"{setting}: {file}: it could not be read until when it is valid")


def _doubts(setting: str, file: str, found: Sequence[Validity], now: datetime) -> Iterator[Doubt]:
    """A sentence for those that do not count, and one for those that will not for long."""
    wrong = [each for each in found if _is_wrong(each, now)]
    soon = [each for each in found if not _is_wrong(each, now) and _ends_soon(each, now)]
    for group in (wrong, soon):
        if group:
            more = f"; so it is with {len(group) - 1} more of the file" if len(group) > 1 else ""
            yield Doubt(_said(setting, file, group[0], now) + more)


def _is_wrong(one: Validity, now: datetime) -> bool:
    return not one.begins <= now <= one.ends


def _ends_soon(one: Validity, now: datetime) -> bool:
    return one.ends - now < min(SOON, (one.ends - one.begins) / LAST_PART)


def _said(setting: str, file: str, one: Validity, now: datetime) -> str:
    """When one of them begins or ends to count."""
    which = f"{setting}: the certificate of {one.owner} in {file}"
    if now < one.begins:
        return f"{which} is not valid before {_shown(one.begins)}"
    if now > one.ends:
        return f"{which} expired at {_shown(one.ends)}"
    left = one.ends - now
    count, unit = (left.days, "days") if left.days > 1 else (left // timedelta(hours=1), "hours")
    return f"{which} expires at {_shown(one.ends)}, in {count} {unit}"


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


class Checked(msgspec.Struct, frozen=True):
    """Passed checks, problems and warnings; sentences that name the setting."""

    right: list[str]
    wrong: list[str]
    doubts: list[str]


def check(config: Config) -> Checked:
    """Look at everything that a start of this process on this machine would need; blocks."""
    checked = Checked([], [], [])
    for part in (*_PARTS, _internal_topics):
        if part is _internal_topics and checked.wrong:
            break  # the cluster is asked only with valid settings
        try:
            for sentence in part(config):
                (checked.doubts if isinstance(sentence, Doubt) else checked.right).append(sentence)
        except (StartError, AuthConfigError) as error:
            checked.wrong.append(str(error))
        except PenstockError as error:
            checked.wrong.append(error.message)
        except OSError as error:  # of an unforeseen file: a sentence, and the other checks
            checked.wrong.append(str(error))
    return checked


def _workers(config: Config) -> Iterator[str]:
    yield f"engine.workers: {config.engine.workers}"


def _ways_in(config: Config) -> Iterator[str]:
    if config.http.listen == OFF and config.http.tls_listen == OFF:
        raise StartError("http.listen and http.tls_listen are both off: there is no way in")
    names: dict[str, str] = {}
    for section, key, _ in SOCKETS:
        listen = getattr(getattr(config, section), key)
        other = names.setdefault(listen, f"{section}.{key}")
        if other != f"{section}.{key}" and listen != OFF and host_and_port(listen)[1]:
            raise StartError(f"{other} and {section}.{key} are both {listen}")
    yield from ()


def _address(section: str, key: str) -> Callable[[Config], Iterator[str]]:
    """What looks at one address."""

    def look_at(config: Config) -> Iterator[str]:
        name, listen = f"{section}.{key}", getattr(getattr(config, section), key)
        if listen == OFF:
            return
        try:
            bound, taken = _bind(listen)
        except StartError as error:
            raise StartError(f"{name}: {error}") from None
        with bound:
            exposed = is_exposed(name, listen, bound, config.auth)
        said = ", whose port a running program has now" if taken else ""
        yield f"{name}: {listen}{said}{', open to other machines without authentication' if exposed else ''}"

    return look_at


def _bind(listen: str) -> tuple[socket.socket, bool]:
    """A socket of the address, and whether its port is taken, as by the server that runs: then it has another port."""
    try:
        return bind(listen), False
    except PortTakenError:
        return bind(f"{listen.rpartition(':')[0]}:0"), True


def _certificates(config: Config) -> Iterator[str]:
    if _has_tls(config):
        certificates = Certificates(config.tls)
        certificates.context()
        yield from own("tls.cert_file", config.tls.cert_file, ", with its key")


def _client_authorities(config: Config) -> Iterator[str]:
    file = config.tls.client_ca_file
    if _has_tls(config) and config.tls.client_certificates != "none" and os.access(file, os.R_OK):
        yield from trusted("tls.client_ca_file", file)


def _has_tls(config: Config) -> bool:
    return any(
        getattr(getattr(config, section), key) != OFF for section, key, scheme in SOCKETS if scheme in TLS
    )


def _engine_files(config: Config) -> Iterator[str]:
    """Tokens and certificates of the server at the cluster, which are read when it connects."""
    for key in config.engine.__struct_fields__:
        name = getattr(config.engine, key)
        if not config.engine.url or not key.endswith("_file") or not name:
            continue
        try:
            Path(name).open("rb").close()
        except OSError as error:
            raise StartError(f"engine.{key}: {name}: {error.strerror}") from None
        yield f"engine.{key}: {name}, which can be read"


def _engine_certificate(config: Config) -> Iterator[str]:
    engine = config.engine
    if engine.url and os.access(engine.tls_cert_file, os.R_OK):
        yield from own("engine.tls_cert_file", engine.tls_cert_file)


def _engine_authorities(config: Config) -> Iterator[str]:
    engine = config.engine
    if engine.url and os.access(engine.tls_trust_file, os.R_OK):
        yield from trusted("engine.tls_trust_file", engine.tls_trust_file)


def _fleet(config: Config) -> Iterator[str]:
    """Whether processes before a cluster pass requests on."""
    found = open_fleet(config.fleet)
    if found is not None:
        yield "fleet.secret: given"
    elif config.engine.url:
        try:
            file = secret_file()
        except RuntimeError as error:
            yield Doubt(
                f"fleet.secret is not given, and cannot be kept: {error}; set it if several processes are to run"
            )
        else:
            yield f"fleet.secret: not given, processes of this user on this machine share {file}"


def _parts(config: Config) -> Iterator[str]:
    """The engine, keys, users and permissions, as the application is built of them."""

    async def made() -> None:
        app = build(config)
        if app.tracing is not None:
            app.tracing.close()

    asyncio.run(made())
    yield f"engine.url: {config.engine.url or 'none'}"
    yield f"auth.enabled: {'true, with its keys, users and permissions' if config.auth.enabled else 'false'}"


def _internal_topics(config: Config) -> Iterator[str]:
    """Which principals may write the topics in Kafka that hold permissions."""
    right, doubts = asyncio.run(check_kafka(config.engine))
    yield from right
    yield from map(Doubt, doubts)


def _folder(config: Config) -> Iterator[str]:
    if config.engine.url or config.data.store == "memory":
        return
    try:
        found = look(config.data.folder, FILE_NAME)
    except PenstockError as error:
        raise StartError(f"data.folder: {error.message}") from None
    said = f"whose storage has version {found.version}"
    if found.version is None:
        said = "where the storage is yet to be made"
    elif found.version < found.newest:
        said += f"; a start makes {found.newest} of it: back it up first"
    yield f"data.folder: {config.data.folder}, {said}"


_PARTS: Final[tuple[Callable[[Config], Iterator[str]], ...]] = (
    _workers,
    _ways_in,
    *(_address(section, key) for section, key, _ in SOCKETS),
    _certificates,
    _client_authorities,
    _engine_files,
    _engine_certificate,
    _engine_authorities,
    _fleet,
    _parts,
    _folder,
)
