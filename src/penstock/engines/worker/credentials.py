"""How a worker proves itself to the process that owns the log."""

from base64 import b64encode

import msgspec

from penstock.client.authentication import Authentication
from penstock.model.secret import Secret
from penstock.model.worker import METHOD, WorkerCredentials


class WorkerAuthentication(Authentication):
    """A worker that acts for itself, or for a caller of this role that came through this proxy."""

    method = METHOD

    def __init__(self, secret: Secret, role: str | None = None, proxy: str | None = None) -> None:
        self._data = msgspec.json.encode(WorkerCredentials(secret.reveal(), role, proxy))

    def data(self) -> bytes:
        return self._data

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"{METHOD} {b64encode(self._data).decode()}"}
