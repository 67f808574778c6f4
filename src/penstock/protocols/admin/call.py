"""One call of the administrator's endpoint: its caller, operation, parameters and body."""

from typing import Any, Final, TypeVar

import msgspec

from penstock.broker.administration import Administration
from penstock.broker.broker import Broker
from penstock.broker.capability import offered
from penstock.broker.namespaces import Policies
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName, check_entity, check_subscription
from penstock.protocols.caller import Caller
from penstock.protocols.http.answers import BodyError
from penstock.protocols.http.params import flag, whole_number

T = TypeVar("T")

_NUMBER_MAX: Final = 10**18 - 1


class Call(msgspec.Struct, frozen=True):
    """What a handler is given. `path` and `query` hold decoded texts."""

    caller: Caller
    path: dict[str, str]
    query: dict[str, str]
    content: bytes
    host: str = ""
    address: str = ""  # by which the client reached the server: `scheme://host`

    @property
    def broker(self) -> Broker:
        return self.caller.context.broker

    @property
    def administration(self) -> Administration:
        """Raises NOT_SUPPORTED if the cluster has its own."""
        return offered(self.broker.administration, "administration of topics")

    @property
    def policies(self) -> Policies:
        """Raises NOT_SUPPORTED if the cluster has its own."""
        return offered(self.broker.policies, "policies of its own")

    def reached(self, url: str, advertised: bool = False) -> str:
        """An endpoint's address by the name of this host that led the client here; "" of an endpoint that is closed."""
        host = self.host.rpartition(":")[0] if self.host[-1:] != "]" and ":" in self.host else self.host
        if not url or advertised or not host:
            return url
        scheme, _, address = url.partition("://")
        return f"{scheme}://{host}:{address.rpartition(':')[2]}"

    @property
    def http_url(self) -> str:
        """This server's address for HTTP: the client's own, unless it came over TLS."""
        if self.address.startswith("http://"):
            return self.address
        return self.reached(self.caller.context.http_url) or f"http://{self.host}"

    @property
    def https_url(self) -> str:
        """The same over TLS; "" if neither the server nor a proxy before it has a TLS address."""
        if self.address.startswith("https://"):
            return self.address
        return self.reached(self.caller.context.https_url)

    # -- names

    @property
    def tenant(self) -> str:
        """The tenant in the path; checks no permission. Raises INVALID_NAME."""
        return check_entity("tenant", self.path["tenant"])

    @property
    def namespace(self) -> NamespaceName:
        """The namespace in the path; may be administered. Raises INVALID_NAME, FORBIDDEN."""
        name = NamespaceName.of(self.path["tenant"], self.path["namespace"])
        self.caller.may_administer(name)
        return name

    @property
    def listed_namespace(self) -> NamespaceName:
        """The same, if any permission in it is enough: `visible` says which topics."""
        name = NamespaceName.of(self.path["tenant"], self.path["namespace"])
        self.caller.may_list(name)
        return name

    @property
    def topic(self) -> TopicName:
        """The topic in the path; may be administered. Raises INVALID_NAME, FORBIDDEN, as those that ask for less."""
        name = self.named_topic
        self.caller.may_administer_topic(name)
        return name

    @property
    def consumed_topic(self) -> TopicName:
        """The topic in the path; may be consumed."""
        name = self.named_topic
        self.caller.may_consume(name)
        return name

    @property
    def produced_topic(self) -> TopicName:
        """The topic in the path; may be produced to."""
        name = self.named_topic
        self.caller.may_produce(name)
        return name

    @property
    def seen_topic(self) -> TopicName:
        """The topic in the path; anything may be done with it."""
        name = self.named_topic
        self.caller.may_look(name)
        return name

    @property
    def named_topic(self) -> TopicName:
        """The topic in the path, persistent without a domain; no permission is checked."""
        path = self.path
        domain = path.get("domain", "persistent")
        return TopicName.of(domain, path["tenant"], path["namespace"], path["topic"])

    @property
    def subscription(self) -> str:
        """The subscription in the path; raises INVALID_NAME."""
        return check_subscription(self.path["subscription"])

    # -- parameters

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean parameter; raises BAD_PARAMETER."""
        text = self.query.get(name)
        return default if text is None else flag(name, text, empty=False)

    def number(self, name: str) -> int:
        """A number in the path, not negative; raises BAD_PARAMETER."""
        return whole_number(name, self.path[name], most=_NUMBER_MAX)

    def query_number(self, name: str, default: int) -> int:
        """A number in the query, not negative; raises BAD_PARAMETER."""
        text = self.query.get(name)
        return default if text is None else whole_number(name, text, most=_NUMBER_MAX)

    def body(self, type: type[T]) -> T:
        """The body as JSON; raises BAD_PARAMETER."""
        try:
            # Numbers that Pulsar's tools send as texts are taken, within objects.
            return msgspec.json.decode(
                self.content, type=type, strict=not self.content.lstrip().startswith(b"{")
            )
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BodyError(ErrorKind.BAD_PARAMETER, f"bad body: {error}") from None

    def body_or_none(self, type: type[T]) -> T | None:
        """The body as JSON; None for an empty one and for `null`. Raises BAD_PARAMETER."""
        return None if self.content.strip() in (b"", b"null") else self.body(type)

    def bounded(self, properties: dict[str, str]) -> dict[str, str]:
        """Properties that are not too large to be kept; raises TOO_LARGE."""
        most = self.caller.context.limits.max_properties_bytes
        size = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
        if size > most:
            raise PenstockError(ErrorKind.TOO_LARGE, f"properties of {size} bytes; the most is {most}")
        return properties

    def word(self) -> str:
        """The body as one word, as a JSON string or as plain text: Pulsar's tools send both."""
        text: Any = self.content.decode("utf-8", "replace").strip()
        if text.startswith('"'):
            text = self.body(str)
        return str(text)
