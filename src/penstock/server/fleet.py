"""The requests of other processes of the service: sessions that they begin, and clients' requests that they pass on."""

import ssl
from pathlib import Path
from typing import Final

import msgspec

from penstock.broker.fleet import FORWARDED
from penstock.engines.fleet.fleet import ProcessFleet
from penstock.engines.fleet.sessions import Hello
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret
from penstock.protocols.forwarding import forwarded_scope
from penstock.protocols.http.answers import RefusedError, not_allowed, to_json
from penstock.protocols.http.exchange import Exchange

from .config import FleetSettings, StartError

_HELLO_BYTES_MAX: Final = 4096
_hello: Final = msgspec.json.Decoder(Hello)


def open_fleet(settings: FleetSettings, local: Secret | None = None) -> ProcessFleet | None:
    """The other processes of this one's service, none of them known yet. `local` is used if no secret is configured; None without any
    secret. Raises StartError, BAD_PARAMETER."""
    secret = settings.secret
    if settings.secret_file:
        if secret:
            raise StartError("fleet.secret and fleet.secret_file are both given: remove one of them")
        try:
            secret = Secret(Path(settings.secret_file).read_text("utf-8").strip())
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(f"fleet.secret_file: {settings.secret_file}: {error}") from None
        if not secret:
            raise StartError(f"fleet.secret_file: {settings.secret_file} is empty")
    secret = secret or local or Secret()
    if not secret:
        return None
    tls = None
    if settings.tls_trust_file:
        try:
            tls = ssl.create_default_context(cafile=settings.tls_trust_file)
        except (OSError, ssl.SSLError) as error:
            raise StartError(f"fleet.tls_trust_file: {settings.tls_trust_file}: {error}") from None
    return ProcessFleet(secret, tls=tls)


class FleetEndpoint:
    """`/fleet`. `keep_alive_s`: for how long connections to this process may be idle."""

    def __init__(self, fleet: ProcessFleet, keep_alive_s: float) -> None:
        self._fleet = fleet
        self._keep_alive_s = keep_alive_s

    async def __call__(self, exchange: Exchange) -> None:
        if exchange.scope["path"] != "/fleet/session":
            raise PenstockError(ErrorKind.NOT_FOUND, f"there is nothing at {exchange.scope['path'][:200]}")
        if exchange.method != "POST":
            raise not_allowed(exchange.method, ("POST",))
        hello = await exchange.json(_hello, _HELLO_BYTES_MAX)
        await exchange.answer(to_json(self._fleet.begin(hello, self._keep_alive_s / 2)))

    def accept(self, exchange: Exchange) -> None:
        """Have a request that another process passed on be that of its client; raises MISDIRECTED."""
        assert exchange.forwarded is not None
        scope = exchange.scope
        target: bytes = scope.get("raw_path") or scope["path"].encode()
        if scope["query_string"]:
            target += b"?" + scope["query_string"]
        try:
            caller = self._fleet.accept(
                exchange.forwarded, exchange.method.encode(), target, scope["headers"]
            )
        except PenstockError as error:
            raise RefusedError(error.kind, error.message, {FORWARDED.decode(): "refused"}) from None
        forwarded_scope(exchange, caller)
