"""Names of topics, namespaces and subscriptions, as Pulsar writes them."""

import re
from typing import Final, Literal, Self

import msgspec

from .errors import ErrorKind, PenstockError

Domain = Literal["persistent", "non-persistent"]

PARTITION_SUFFIX: Final = "-partition-"
NAME_BYTES_MAX: Final = 512  # a name travels in URLs, headers and keys of the store

# Pulsar's NamedEntity rule for tenants and namespaces.
_ENTITY = re.compile(r"[-=:.\w]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_PARTITION = re.compile(r".+-partition-(0|[1-9][0-9]{0,8})", re.DOTALL)
# `.` and `..` are dot segments of a path (RFC 3986 5.2.4): as a whole name, as a part of one between slashes, and as the
# topic of a partition.
_RELATIVE = re.compile(r"(?:\A|/)\.\.?(?:/|(?:-partition-[0-9]+)*\Z)")


def _bad(what: str) -> PenstockError:
    return PenstockError(ErrorKind.INVALID_NAME, what)


def check_entity(kind: str, name: str) -> str:
    """Return a tenant's or namespace's `name`, or raise INVALID_NAME."""
    if not name or len(name) > NAME_BYTES_MAX or not _ENTITY.fullmatch(name) or name in (".", ".."):
        raise _bad(f"invalid {kind} name {name!r}: letters, digits and -=:._ only")
    return name


def check_local(kind: str, name: str) -> str:
    """Return the local `name` of a topic, or the name of a client or a stage, or raise INVALID_NAME."""
    if not name or not name.strip():
        raise _bad(f"empty {kind} name")
    if _CONTROL.search(name):
        raise _bad(f"invalid {kind} name {name!r}: control characters")
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise _bad(f"invalid {kind} name: not valid Unicode") from None
    if size > NAME_BYTES_MAX:
        raise _bad(f"{kind} name longer than {NAME_BYTES_MAX} bytes")
    if "." in name and _RELATIVE.search(name):
        raise _bad(f"invalid {kind} name {name!r}: '.' and '..' are not names")
    return name


def check_subscription(name: str) -> str:
    """Return a subscription's `name`, or raise INVALID_NAME."""
    return check_local("subscription", name)


def partition_of(local: str) -> int:
    """The partition that a topic's local name ends with, or -1."""
    match = _PARTITION.fullmatch(local)
    return int(match.group(1)) if match else -1


class NamespaceName(msgspec.Struct, frozen=True, order=True):
    """`tenant/namespace`."""

    tenant: str
    namespace: str

    @classmethod
    def of(cls, tenant: str, namespace: str) -> Self:
        """Check both parts; raises INVALID_NAME."""
        return cls(check_entity("tenant", tenant), check_entity("namespace", namespace))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `tenant/namespace`; raises INVALID_NAME."""
        parts = text.split("/")
        if len(parts) != 2:
            raise _bad(f"invalid namespace {text!r}: tenant/namespace is expected")
        return cls.of(parts[0], parts[1])

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


DEFAULT_NAMESPACE: Final = NamespaceName("public", "default")
SYSTEM_NAMESPACE: Final = NamespaceName("penstock", "system")  # internal topics of Penstock


class TopicName(msgspec.Struct, frozen=True, order=True):
    """`{domain}://{tenant}/{namespace}/{local}`; `partition` is -1 unless `local` ends in `-partition-N`."""

    domain: Domain
    tenant: str
    namespace: str
    local: str
    partition: int = -1

    @classmethod
    def of(cls, domain: str, tenant: str, namespace: str, local: str) -> Self:
        """Check each part; raises INVALID_NAME."""
        if domain not in ("persistent", "non-persistent"):
            raise _bad(f"invalid domain {domain!r}: persistent or non-persistent")
        check_entity("tenant", tenant)
        check_entity("namespace", namespace)
        check_local("topic", local)
        return cls(domain, tenant, namespace, local, partition_of(local))  # type: ignore[arg-type]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a full name or a short one (`topic` or `tenant/namespace/topic`, persistent)."""
        domain, separator, rest = text.partition("://")
        if not separator:
            domain, rest = "persistent", text
            if "/" not in rest:
                return cls.of(domain, "public", "default", rest)
        parts = rest.split("/", 2)
        if len(parts) != 3:
            raise _bad(f"invalid topic name {text!r}")
        return cls.of(domain, parts[0], parts[1], parts[2])

    @classmethod
    def parse_known(cls, text: str) -> Self | None:
        """Parse a name that is stored or that a cluster lists; None if it is not allowed here (any more)."""
        try:
            return cls.parse(text)
        except PenstockError:
            return None

    @property
    def namespace_name(self) -> NamespaceName:
        return NamespaceName(self.tenant, self.namespace)

    @property
    def persistent(self) -> bool:
        return self.domain == "persistent"

    @property
    def base(self) -> "TopicName":
        """The partitioned topic this is a partition of, or itself."""
        if self.partition < 0:
            return self
        local = self.local[: self.local.rindex(PARTITION_SUFFIX)]
        return TopicName(self.domain, self.tenant, self.namespace, local, partition_of(local))

    def of_partition(self, number: int) -> "TopicName":
        """The name of partition `number` of this partitioned topic."""
        local = f"{self.local}{PARTITION_SUFFIX}{number}"
        return TopicName(self.domain, self.tenant, self.namespace, local, number)

    def sibling(self, local: str) -> "TopicName":
        """A topic of the same domain and namespace."""
        return TopicName.of(self.domain, self.tenant, self.namespace, local)

    def __str__(self) -> str:
        return f"{self.domain}://{self.tenant}/{self.namespace}/{self.local}"
