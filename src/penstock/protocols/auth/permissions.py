"""What a role may do: actions on namespaces and topics, from the configuration and as administrators granted.

`admin` of a namespace, or of its tenant, includes the others, as a role that has it could grant them to itself. A
topic's permissions add to its namespace's; a partition has its topic's.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.broker.namespaces import Namespaces
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import NamespaceName, TopicName

from .settings import AuthConfigError

PRODUCE: Final = "produce"
CONSUME: Final = "consume"
ADMIN: Final = "admin"
# Pulsar's others can be granted, so that its tools work; they mean nothing here.
ACTIONS: Final = (PRODUCE, CONSUME, ADMIN, "functions", "sources", "sinks", "packages")

ANSWERS_MAX: Final = 10_000  # remembered, until any permission changes

Grants = Mapping[str, Iterable[str]]


def check_actions(actions: Iterable[str]) -> tuple[str, ...]:
    """Actions by their names, each once, in one order; raises BAD_PARAMETER."""
    wanted = set(actions)
    for unknown in sorted(wanted.difference(ACTIONS)):
        raise PenstockError(
            ErrorKind.BAD_PARAMETER, f"unknown action {unknown[:80]!r}; there are {', '.join(ACTIONS)}"
        )
    return tuple(action for action in ACTIONS if action in wanted)


class Permissions:
    """Who may do what. Every answer is for one role on one topic or namespace, and remembered."""

    def __init__(
        self,
        namespaces: Namespaces,
        super_users: Iterable[str] = (),
        configured: Mapping[str, Grants] | None = None,
    ) -> None:
        self._namespaces = namespaces
        self._super_users = frozenset(super_users)
        self._of_namespaces: dict[NamespaceName, dict[str, tuple[str, ...]]] = {}
        self._of_topics: dict[TopicName, dict[str, tuple[str, ...]]] = {}
        self._answers: dict[tuple[str, str, TopicName], bool] = {}
        for place, grants in (configured or {}).items():
            self._configure(place, grants)
        namespaces.listeners.append(self._forget)

    def _forget(self) -> None:
        self._answers.clear()

    def replace(self, old: "Permissions") -> None:
        """Listen in the place of others, before those who ask when something changed."""
        listeners = self._namespaces.listeners
        listeners.remove(self._forget)
        listeners[listeners.index(old._forget)] = self._forget

    def _configure(self, place: str, grants: Grants) -> None:
        try:
            checked = {role: check_actions(actions) for role, actions in grants.items()}
            if "://" in place or place.count("/") == 2:
                name = TopicName.parse(place)
                if name.partition >= 0 and any(ADMIN in actions for actions in checked.values()):
                    raise PenstockError(
                        ErrorKind.BAD_PARAMETER, "a partition is administered with its topic: name that"
                    )
                self._of_topics[name] = checked
            else:
                self._of_namespaces[NamespaceName.parse(place)] = checked
        except PenstockError as error:
            raise AuthConfigError(f"auth.permissions: {place[:80]!r}: {error.message}") from None

    # -- questions

    def is_super(self, role: str) -> bool:
        """Whether a role may do everything."""
        return role in self._super_users

    def may(self, role: str, action: str, topic: TopicName) -> bool:
        """Whether a role may do something with a topic."""
        key = role, action, topic
        answer = self._answers.get(key)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
            answer = self._answers[key] = self._may(role, action, topic)
        return answer

    def _may(self, role: str, action: str, topic: TopicName) -> bool:
        namespace = topic.namespace_name
        return self.may_in(role, action, namespace) or _grants(self._on(role, topic), action)

    def may_in(self, role: str, action: str, namespace: NamespaceName) -> bool:
        """Whether a role may do something with every topic of a namespace."""
        if self.administers(role, namespace.tenant):
            return True
        return _grants(self._in(role, namespace), action)

    def may_use_subscription(self, role: str, subscription: str, namespace: NamespaceName) -> bool:
        """Whether a role that may consume may use a subscription. A namespace of a cluster may restrict a subscription to
        some roles, or each role to subscriptions with its name as prefix; the tenant's administrators may use all."""
        policies = self._namespaces.find(namespace)
        if policies is None or not (policies.subscription_roles or policies.subscription_prefix):
            return True
        if self.administers(role, namespace.tenant):
            return True
        roles = policies.subscription_roles.get(subscription)
        if roles and role not in roles:
            return False
        return not policies.subscription_prefix or subscription.startswith(role)

    def administers(self, role: str, tenant: str) -> bool:
        """Whether a role administers a tenant: everything in it."""
        found = self._namespaces.tenants.get(tenant)
        return role in self._super_users or (found is not None and role in found.admin_roles)

    def knows(self, role: str, namespace: NamespaceName) -> bool:
        """Whether a role may do anything at all in a namespace."""
        if self.administers(role, namespace.tenant) or self._in(role, namespace):
            return True
        if any(topic.namespace_name == namespace and by.get(role) for topic, by in self._of_topics.items()):
            return True
        policies = self._namespaces.find(namespace)
        return policies is not None and any(by.get(role) for by in policies.topic_permissions.values())

    def somewhere(self, role: str, action: str) -> bool:
        """Whether a role may do something with any topic at all."""
        namespaces = self._namespaces
        if role in self._super_users or any(role in one.admin_roles for one in namespaces.tenants.values()):
            return True
        grants = [*self._of_namespaces.values(), *self._of_topics.values()]
        for namespace in namespaces.all():
            policies = namespaces.find(namespace)
            if policies is not None:
                grants += [policies.permissions, *policies.topic_permissions.values()]
        return any(_grants(by.get(role, ()), action) for by in grants)

    # -- grants

    def _in(self, role: str, namespace: NamespaceName) -> tuple[str, ...]:
        configured = self._of_namespaces.get(namespace, {}).get(role, ())
        policies = self._namespaces.find(namespace)
        return configured if policies is None else (*configured, *policies.permissions.get(role, ()))

    def _on(self, role: str, topic: TopicName) -> tuple[str, ...]:
        found: list[str] = []
        policies = self._namespaces.find(topic.namespace_name)
        for name in {topic, topic.base}:
            found += self._of_topics.get(name, {}).get(role, ())
            if policies is not None:
                found += policies.topic_permissions.get(str(name), {}).get(role, ())
        return tuple(found)


def _grants(actions: tuple[str, ...], action: str) -> bool:
    return action in actions or ADMIN in actions
