"""Workers of one server (`penstock serve --workers`): how they prove themselves to the process that owns the log, and how
they name their callers."""

from typing import Final, Self

import msgspec

from .secret import Secret

METHOD: Final = "penstock-worker"  # of authentication: in CONNECT, and the scheme of an Authorization header
CLIENT_PROPERTY: Final = "penstock-worker-client"  # of a producer or consumer: its client program, as JSON

# The prefix of connections over which a worker sends numbered messages of a shared name. The owner recognises repeats
# by the name in each entry, as Pulsar's brokers do for replicators (docs/decisions/0098-producers-that-share-a-name.md).
NUMBERED_PREFIX: Final = "pulsar.repl."


class WorkerAccess(msgspec.Struct, frozen=True):
    """Where the process that owns the log serves its workers (`host:port`), its id among the processes of the service, and the
    secret that they prove themselves by."""

    http: str
    pulsar: str
    id: str
    secret: Secret = Secret()

    @classmethod
    def parse(cls, text: str, secret: Secret) -> Self:
        """Parse what `str` returned, and add the secret, which must not be in a process's arguments."""
        http, pulsar, process = text.split(",")
        return cls(http, pulsar, process, secret)

    def __str__(self) -> str:
        return f"{self.http},{self.pulsar},{self.id}"


class WorkerCredentials(msgspec.Struct, frozen=True, omit_defaults=True):
    """The credentials of a worker as it connects. `role` is that of the caller that it acts for, and `proxy` that of the proxy that the
    caller came through; without a role it acts for itself, or for callers that are not authenticated."""

    secret: str
    role: str | None = None
    proxy: str | None = None
