"""Sessions between two processes: how each proves its identity before a client's credentials are sent, and signs requests.

The asking process begins a session on each new connection:

    asker -> asked   from, to, nonce a, code("hello", from, to, a)
    asked -> asker   session, nonce b, code("welcome", key)        key = code("session", from, to, session, a, b)

The asker sends no data of a client before it has checked `welcome`: another program at the address of a process that ended
gets none. Each request then has a number, larger than that of the one before it, and a code with `key` of the number, of the
client as its connection shows it, and of the request's line and credentials. So a replayed request is refused, and no clock is
needed. A session belongs to no connection, as a proxy may spread requests over several.
"""

import base64
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from penstock.broker.fleet import CONNECT, PROCESS_METHOD, Caller, Header
from penstock.client.authentication import Authentication
from penstock.client.errors import ConnectError, PulsarException
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.secret import Secret

SECRET_BYTES_MIN: Final = 16
_ID_BYTES: Final = 8  # of a process
_RANDOM_BYTES: Final = 12  # of an id that a process creates
_TAG_BYTES: Final = 10
SESSIONS_MAX: Final = 16_384  # sessions of a process: one for each connection from another process
VERSION: Final = 1  # of this protocol
SIGNED: Final = (b"authorization", b"x-original-principal")  # headers that identify the client
_NONCE_BYTES: Final = 16


class Proof:
    """Codes with one secret. Raises BAD_PARAMETER for a secret that is too short."""

    def __init__(self, secret: Secret) -> None:
        key = secret.reveal().encode()
        if len(key) < SECRET_BYTES_MIN:
            raise PenstockError(
                ErrorKind.BAD_PARAMETER,
                f"fleet.secret is shorter than {SECRET_BYTES_MIN} bytes: make one with openssl rand -hex 32",
            )
        self._key = hmac.digest(key, b"penstock fleet", "sha256")

    def code(self, purpose: str, *parts: bytes) -> bytes:
        """The code of some parts for a purpose."""
        return code_of(self._key, purpose.encode(), *parts)

    def new_id(self, process: str) -> str:
        """An id that names its process, and that no client can guess or create."""
        content = bytes.fromhex(process) + secrets.token_bytes(_RANDOM_BYTES)
        return base64.urlsafe_b64encode(content + self._tag(content)).decode()

    def owner_of(self, id: str) -> str | None:
        """The process that created an id; None if it was not created with this secret."""
        try:
            content = base64.b64decode(id.encode("ascii"), altchars=b"-_", validate=True)
        except ValueError:  # and UnicodeEncodeError, which is one
            return None
        if len(content) != _ID_BYTES + _RANDOM_BYTES + _TAG_BYTES:
            return None
        named, tag = content[:-_TAG_BYTES], content[-_TAG_BYTES:]
        return content[:_ID_BYTES].hex() if hmac.compare_digest(self._tag(named), tag) else None

    def _tag(self, content: bytes) -> bytes:
        return self.code("id", content)[:_TAG_BYTES]


def new_process_id() -> str:
    """A random id of a process, in hexadecimal digits."""
    return secrets.token_hex(_ID_BYTES)


def code_of(key: bytes, *parts: bytes) -> bytes:
    """The code of some parts; their lengths are part of it."""
    return hmac.digest(key, b"".join([b"%d:%b," % (len(part), part) for part in parts]), "sha256")


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The request that begins a session."""

    version: int
    asker: str
    asked: str
    nonce: str
    code: str


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to `Hello`. `idle_s`: for how long a connection may be idle, in seconds."""

    session: str
    nonce: str
    code: str
    idle_s: float


class Asking:
    """A session, for the process that began it."""

    def __init__(self, proof: Proof, asker: str, asked: str) -> None:
        nonce = secrets.token_hex(_NONCE_BYTES)
        code = proof.code("hello", asker.encode(), asked.encode(), nonce.encode()).hex()
        self.hello = Hello(version=VERSION, asker=asker, asked=asked, nonce=nonce, code=code)
        self._proof = proof
        self._session = ""
        self._key = b""
        self._number = 0

    def welcomed(self, welcome: Welcome) -> bool:
        """Whether the answer is that of the process that was asked."""
        self._session = welcome.session
        self._key = _key(self._proof, self.hello, welcome.session, welcome.nonce)
        return hmac.compare_digest(_welcome(self._key).encode(), welcome.code.encode())

    def sign(self, method: bytes, target: bytes, headers: Sequence[Header], caller: Caller) -> bytes:
        """The proof of the next request."""
        self._number += 1
        fields = base64.urlsafe_b64encode(msgspec.json.encode(caller))
        number = b"%d" % self._number
        code = _code(self._key, number, fields, method, target, headers)
        return b" ".join((self._session.encode(), number, fields, code))


class Sessions:
    """The sessions that other processes began with this one."""

    def __init__(self, proof: Proof, own: str) -> None:
        self._proof = proof
        self._own = own
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()

    def begin(self, hello: Hello, idle_s: float) -> Welcome:
        """Begin a session; raises MISDIRECTED if another process is meant, or the other one does not know the secret."""
        asker, asked = hello.asker.encode(), hello.asked.encode()
        wanted = self._proof.code("hello", asker, asked, hello.nonce.encode()).hex()
        if hello.version != VERSION:
            raise _refused(f"version {hello.version} of sessions between processes is not known here")
        if not hmac.compare_digest(wanted.encode(), hello.code.encode()):
            raise _refused("the other process has another fleet.secret")
        if hello.asked != self._own:
            raise _refused(f"the request is for process {hello.asked[:32]}, which has ended")
        session, nonce = secrets.token_hex(_NONCE_BYTES), secrets.token_hex(_NONCE_BYTES)
        key = _key(self._proof, hello, session, nonce)
        self._sessions[session.encode()] = _Session(key)
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return Welcome(session=session, nonce=nonce, code=_welcome(key), idle_s=idle_s)

    def accept(self, proof: bytes, method: bytes, target: bytes, headers: Sequence[Header]) -> Caller:
        """The client of a request that was passed on; raises MISDIRECTED if the proof is not valid, or was used before."""
        parts = proof.split(b" ")
        session = self._sessions.get(parts[0])
        if session is None or len(parts) != 4:
            raise _refused("the request was passed on in a session that this process does not have")
        _, number, fields, code = parts
        if not hmac.compare_digest(_code(session.key, number, fields, method, target, headers), code):
            raise _refused("the proof does not match the request")
        if int(number) <= session.number:
            raise _refused("the request was passed on before")
        session.number = int(number)
        self._sessions.move_to_end(parts[0])
        return msgspec.json.decode(base64.urlsafe_b64decode(fields), type=Caller)


class _Session:
    __slots__ = ("key", "number")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.number = 0  # of the last request


def _key(proof: Proof, hello: Hello, session: str, nonce: str) -> bytes:
    parts = (hello.asker, hello.asked, session, hello.nonce, nonce)
    return proof.code("session", *(part.encode() for part in parts))


def _welcome(key: bytes) -> str:
    return code_of(key, b"welcome").hex()


def _code(
    key: bytes, number: bytes, fields: bytes, method: bytes, target: bytes, headers: Sequence[Header]
) -> bytes:
    return code_of(key, b"request", number, fields, method, target, *_signed(headers)).hex().encode()


def _signed(headers: Sequence[Header]) -> Iterator[bytes]:
    for name, value in headers:
        if name in SIGNED:
            yield name
            yield value


def _refused(what: str) -> PenstockError:
    return PenstockError(ErrorKind.MISDIRECTED, what)


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
