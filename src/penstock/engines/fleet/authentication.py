"""How this process proves to another one of its service who it is, over Pulsar's protocol."""

from penstock.broker.fleet import CONNECT, PROCESS_METHOD, Caller
from penstock.client.authentication import Authentication
from penstock.client.errors import ConnectError, PulsarException

from .sessions import Asking


class ProcessAuthentication(Authentication):
    """Each connection has another proof in one session. `stale`: the other process has forgotten the session."""

    method = PROCESS_METHOD

    def __init__(self, asking: Asking) -> None:
        self.stale = False
        self._asking = asking

    def data(self) -> bytes:
        return self._asking.sign(CONNECT, b"", (), Caller())

    def refused(self, error: PulsarException) -> PulsarException:
        self.stale = True
        return ConnectError(f"the other process refuses the proof of this one: {error.message}")
