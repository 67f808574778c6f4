"""The official Java admin client: every answer is held by Pulsar's own data classes, and every refusal is understood.

The client never completes a call whose answer it cannot parse, which the program reports as the error "hangs".
"""

import itertools
from typing import Any

import httpx
import pytest
from tests.clients.users import User

from penstock.testing.server import Address

_numbers = itertools.count()


class Admin:
    """The admin client, with a namespace of its own, a topic `t` and a partitioned topic `p`."""

    def __init__(self, java: User, server: Address) -> None:
        self.java = java
        self.server = server
        self.namespace = f"admin/n{next(_numbers)}"
        self.topic = f"persistent://{self.namespace}/t"
        self.partitioned = f"persistent://{self.namespace}/p"
        self.broker = server.url.partition("://")[2]

    def outcome(self, on: str, method: str, *given: Any) -> Any:
        """{"value": …} or {"status": …, "reason": …}."""
        return self.java.run("Admin.call", **{"on": on, "method": method, "with": list(given)})

    def __call__(self, on: str, method: str, *given: Any) -> Any:
        found = self.outcome(on, method, *given)
        assert "value" in found, f"{on}.{method}{given}: {found}"
        return found["value"]

    def refused(self, on: str, method: str, *given: Any, status: int = 405) -> str:
        found = self.outcome(on, method, *given)
        assert found.get("status") == status, f"{on}.{method}{given}: {found}"
        return str(found["reason"])

    def publish(self, *messages: dict[str, Any]) -> list[str]:
        """Each message as an entry of its own; answers their ids."""
        ids = []
        for message in messages:
            path = f"/topics/{self.namespace}/t"
            answer = httpx.post(f"{self.server.url}{path}", json={"messages": [message]})
            assert answer.is_success
            ids += [slot["messageId"] for slot in answer.json()["messageIds"]]
        return ids


@pytest.fixture
def admin(java: User, clients_server: Address) -> Admin:
    made = Admin(java, clients_server)
    if "admin" not in made("tenants", "getTenants"):
        made("tenants", "createTenant", "admin", {"adminRoles": ["r"], "allowedClusters": ["standalone"]})
    made("namespaces", "createNamespace", made.namespace)
    made("topics", "createNonPartitionedTopic", made.topic)
    made("topics", "createPartitionedTopic", made.partitioned, 2)
    for topic in (made.topic, made.partitioned):
        made("topics", "createSubscription", topic, "s", "earliest")
    return made


def test_the_cluster_and_its_broker(admin: Admin) -> None:
    assert admin("clusters", "getClusters") == ["standalone"]
    assert admin("clusters", "getCluster", "standalone")["serviceUrl"] == admin.server.url
    assert admin("clusters", "getPeerClusterNames", "standalone") == []
    assert admin("clusters", "getFailureDomains", "standalone") == {}
    assert admin("clusters", "getNamespaceIsolationPolicies", "standalone") == {}
    assert admin("clusters", "getBrokersWithNamespaceIsolationPolicy", "standalone") == []
    assert admin("brokers", "getActiveBrokers") == [admin.broker]
    assert admin("brokers", "getActiveBrokers", "standalone") == [admin.broker]
    assert admin("brokers", "getLeaderBroker")["brokerId"] == admin.broker
    assert admin("brokers", "getDynamicConfigurationNames") == []
    assert admin("brokers", "getAllDynamicConfigurations") == {}
    assert admin("brokers", "getRuntimeConfigurations")["clusterName"] == "standalone"
    assert admin("brokers", "getInternalConfigurationData")["metadataStoreUrl"] == ""
    assert admin("brokers", "getVersion").startswith("penstock-")
    for method in ("backlogQuotaCheck", "healthcheck"):
        assert admin("brokers", method) is None
    owned = admin("brokers", "getOwnedNamespaces", "standalone", admin.broker)
    assert owned[f"{admin.namespace}/0x00000000_0xffffffff"]["is_active"] is True
    for method in ("getMetrics", "getMBeans", "getTopics", "getPendingBookieOpsStats"):
        assert isinstance(admin("brokerStats", method), str)  # JSON, as it is
    assert admin("brokerStats", "getLoadReport") is None
    assert admin("resourceQuotas", "getDefaultResourceQuota")["dynamic"] is True
    bundle = "0x00000000_0xffffffff"
    assert admin("resourceQuotas", "getNamespaceBundleResourceQuota", admin.namespace, bundle)["dynamic"]
    assert admin("bookies", "getBookies") == {"bookies": []}
    assert admin("bookies", "getBookiesRackInfo") == {}
    assert admin("resourcegroups", "getResourceGroups") == []


def test_tenants_and_namespaces(admin: Admin) -> None:
    assert admin("tenants", "getTenantInfo", "admin")["adminRoles"] == ["r"]
    admin("tenants", "updateTenant", "admin", {"adminRoles": ["r"], "allowedClusters": ["standalone"]})
    assert admin.namespace in admin("namespaces", "getNamespaces", "admin")
    assert admin("namespaces", "getBundles", admin.namespace)["numBundles"] == 1
    policies = admin("namespaces", "getPolicies", admin.namespace)
    assert policies["replication_clusters"] == ["standalone"]
    names = [f"{admin.partitioned}-partition-0", f"{admin.partitioned}-partition-1", admin.topic]
    assert sorted(admin("namespaces", "getTopics", admin.namespace)) == names
    assert sorted(admin("topics", "getList", admin.namespace)) == names
    assert admin("topics", "getPartitionedTopicList", admin.namespace) == [admin.partitioned]
    assert admin("topics", "getListInBundle", admin.namespace, "0x00000000_0xffffffff") == []

    admin("namespaces", "setProperty", admin.namespace, "a", "b")
    assert admin("namespaces", "getProperty", admin.namespace, "a") == "b"
    admin("namespaces", "setProperties", admin.namespace, {"c": "d"})
    assert admin("namespaces", "getProperties", admin.namespace) == {"a": "b", "c": "d"}
    assert admin("namespaces", "removeProperty", admin.namespace, "a") == "b"
    admin("namespaces", "clearProperties", admin.namespace)

    admin("namespaces", "grantPermissionOnNamespace", admin.namespace, "r", ["produce"])
    assert admin("namespaces", "getPermissions", admin.namespace) == {"r": ["produce"]}
    admin("namespaces", "revokePermissionsOnNamespace", admin.namespace, "r")
    assert admin("namespaces", "getPermissionOnSubscription", admin.namespace) == {}

    for method, *given in [
        ("clearNamespaceBacklog",),
        ("clearNamespaceBacklogForSubscription", "s"),
        ("unload",),
        ("unloadNamespaceBundle", "0x00000000_0xffffffff"),
        ("unsubscribeNamespace", "s"),
    ]:
        assert admin("namespaces", method, admin.namespace, *given) is None
    assert admin("topics", "getSubscriptions", admin.topic) == []

    admin("tenants", "createTenant", "gone", {"adminRoles": [], "allowedClusters": ["standalone"]})
    admin("namespaces", "createNamespace", "gone/n")
    admin.refused("tenants", "deleteTenant", "gone", status=409)
    admin("tenants", "deleteTenant", "gone", True)
    admin.refused("tenants", "getTenantInfo", "gone", status=404)


def test_topics(admin: Admin) -> None:
    topic, whole = admin.topic, admin.partitioned
    admin("topics", "createPartitionedTopic", f"{whole}2", 2, {"x": "y"})
    admin("topics", "updatePartitionedTopic", f"{whole}2", 3)
    found = admin("topics", "getPartitionedTopicMetadata", f"{whole}2")
    assert (found["partitions"], found["properties"]) == (3, {"x": "y"})

    admin.publish({"value": "a"}, {"value": "b"})
    stats = admin("topics", "getStats", topic)
    assert (stats["msgInCounter"], stats["subscriptions"]["s"]["msgBacklog"]) == (2, 2)
    inner = admin("topics", "getInternalStats", topic)
    assert (inner["numberOfEntries"], inner["cursors"]["s"]["active"]) == (2, False)
    assert admin("topics", "getPartitionedStats", whole, True)["partitions"].keys() == {
        f"{whole}-partition-{n}" for n in range(2)
    }
    assert len(admin("topics", "getPartitionedInternalStats", whole)["partitions"]) == 2
    for name in (topic, whole):
        assert '"ledgers"' in admin("topics", "getInternalInfo", name)
    assert admin("topics", "getLastMessageId", topic).endswith(":1:-1")
    assert admin("topics", "getMessageIdByTimestamp", topic, 0).endswith(":0:-1")
    assert admin("topics", "getBacklogSizeByMessageId", topic, "earliest") > 0
    assert admin("topics", "getPermissions", topic) == {}

    admin("topics", "updateProperties", topic, {"k": "v"})
    assert admin("topics", "getProperties", topic) == {"k": "v"}
    admin("topics", "removeProperties", topic, "k")
    for method, *given in [
        ("unload", topic),
        ("unload", whole),
        ("trimTopic", topic),
        ("createMissedPartitions", whole),
        ("triggerCompaction", topic),
        ("truncate", topic),
    ]:
        assert admin("topics", method, *given) is None
    assert admin("topics", "getStats", topic)["subscriptions"]["s"]["msgBacklog"] == 0
    assert admin("topics", "compactionStatus", topic)["status"] in ("RUNNING", "SUCCESS")
    assert admin("topics", "offloadStatus", topic)["status"] == "NOT_RUN"
    assert admin("topics", "getReplicatedSubscriptionStatus", topic, "s") == {topic: False}
    assert admin("topics", "getShadowTopics", topic) is None
    assert admin("lookups", "lookupTopic", topic) == admin.server.pulsar
    assert len(admin("lookups", "lookupPartitionedTopic", whole)) == 2
    assert admin("lookups", "getBundleRange", topic) == "0x00000000_0xffffffff"

    assert admin("topics", "terminateTopic", topic)
    assert admin("topics", "terminatePartitionedTopic", whole).keys() == {"0", "1"}
    admin.refused("topics", "delete", whole, True, status=409)
    admin.refused("topics", "deletePartitionedTopic", topic, status=409)
    admin("topics", "deletePartitionedTopic", whole)
    admin("topics", "delete", topic)
    admin.refused("topics", "getStats", topic, status=404)


def test_messages_and_subscriptions(admin: Admin) -> None:
    topic = admin.topic
    ids = admin.publish(
        {"value": "a", "key": "k", "eventTime": 1603045262772, "properties": {"p": "ä"}}, {"value": "b"}
    )
    first, second = admin("topics", "peekMessages", topic, "s", 2)
    assert (first["data"], first["key"], first["properties"]) == ("a", "k", {"p": "ä"})
    assert (first["eventTime"], second["data"]) == (1603045262772, "b")
    assert abs(first["publishTime"] - second["publishTime"]) < 600_000
    assert admin("topics", "examineMessage", topic, "earliest", 1) == first
    assert admin("topics", "examineMessage", topic, "latest", 1) == second
    ledger, entry = map(int, second["id"].split(":")[:2])
    assert admin("topics", "getMessageById", topic, ledger, entry) == second
    admin.refused("topics", "examineMessage", topic, "latest", 9, status=404)
    batch = [{"value": "c", "key": "k", "properties": {"p": "q"}}, {"value": "d"}]
    path = f"/topics/{admin.namespace}/b"
    assert httpx.post(f"{admin.server.url}{path}", json={"messages": batch}).is_success
    ledger, entry = map(int, admin("topics", "getLastMessageId", f"{topic[:-1]}b").split(":")[:2])
    found = admin("topics", "getMessagesById", f"{topic[:-1]}b", ledger, entry)
    assert [one["data"] for one in found] == ["c", "d"]
    assert found[0]["properties"]["p"] == "q"
    assert admin("topics", "getMessageById", f"{topic[:-1]}b", ledger, entry)["data"] == "c"

    found = admin("topics", "analyzeSubscriptionBacklog", topic, "s", None)
    assert (found["entries"], found["messages"], found["aborted"]) == (2, 2, False)
    admin("topics", "updateSubscriptionProperties", topic, "s", {"a": "b"})
    assert admin("topics", "getSubscriptionProperties", topic, "s") == {"a": "b"}
    for method, *given in [
        ("skipMessages", "s", 1),
        ("expireMessages", "s", 1000),
        ("expireMessagesForAllSubscriptions", 1000),
        ("resetCursor", "s", 0),
        ("resetCursor", "s", "earliest"),
        ("skipAllMessages", "s"),
        ("deleteSubscription", "s"),
    ]:
        assert admin("topics", method, topic, *given) is None
    admin.refused("topics", "deleteSubscription", topic, "s", status=404)

    admin("topics", "createSubscription", topic, "s", "latest")
    for excluded, left in ((True, 1), (False, 2)):
        admin("topics", "resetCursor", topic, "s", ids[0], excluded)
        assert admin("topics", "getStats", topic)["subscriptions"]["s"]["msgBacklog"] == left


# What is decided: the methods' name of a namespace, that of a topic, and a value.
PUBLISH = {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1}
DISPATCH = {
    "dispatchThrottlingRateInMsg": 10,
    "dispatchThrottlingRateInByte": -1,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 1,
}
POLICIES: list[tuple[str, str, Any]] = [
    ("NamespaceMessageTTL", "MessageTTL", 5),
    ("Retention", "Retention", {"retentionTimeInMinutes": 10, "retentionSizeInMB": 5}),
    ("DeduplicationStatus", "DeduplicationStatus", True),
    ("PublishRate", "PublishRate", PUBLISH),
    ("DispatchRate", "DispatchRate", DISPATCH),
    ("SubscriptionDispatchRate", "SubscriptionDispatchRate", DISPATCH),
    ("MaxProducersPerTopic", "MaxProducers", 3),
    ("MaxConsumersPerTopic", "MaxConsumers", 3),
    ("MaxConsumersPerSubscription", "MaxConsumersPerSubscription", 3),
    ("MaxSubscriptionsPerTopic", "MaxSubscriptionsPerTopic", 3),
    ("MaxTopicsPerNamespace", "", 300),
    ("MaxUnackedMessagesPerConsumer", "MaxUnackedMessagesOnConsumer", 7),
    ("CompactionThreshold", "CompactionThreshold", 1000),
    ("AutoSubscriptionCreation", "", {"allowAutoSubscriptionCreation": False}),
    (
        "AutoTopicCreation",
        "",
        {"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 2},
    ),
    ("SubscriptionTypesEnabled", "SubscriptionTypesEnabled", ["Shared"]),
]


def test_policies_are_set_read_and_removed(admin: Admin) -> None:
    for of_namespace, of_topic, value in POLICIES:
        for on, name, target in (
            ("namespaces", of_namespace, admin.namespace),
            ("topicPolicies", of_topic, admin.topic),
        ):
            if name:
                before = admin(on, f"get{name}", target)
                admin(on, f"set{name}", target, value)
                assert admin(on, f"get{name}", target) == value
                if name != "DeduplicationStatus":
                    admin(on, f"remove{name}", target)
                    assert admin(on, f"get{name}", target) == before
    for on, target in (("namespaces", admin.namespace), ("topicPolicies", admin.topic)):
        quota = {"limitSize": 100, "limitTime": -1, "policy": "producer_exception"}
        admin(on, "setBacklogQuota", target, quota, "destination_storage")
        assert admin(on, "getBacklogQuotaMap", target)["destination_storage"]["limitSize"] == 100
        admin(on, "removeBacklogQuota", target, "destination_storage")
    for name, value in (
        ("SchemaCompatibilityStrategy", "BACKWARD"),
        ("SchemaValidationEnforced", True),
        ("IsAllowAutoUpdateSchema", True),
    ):
        admin("namespaces", f"set{name}", admin.namespace, value)
        assert admin("namespaces", f"get{name}", admin.namespace) == value
    admin("topicPolicies", "deleteTopicPolicies", admin.topic)


def test_what_is_fixed_here_is_answered_and_cannot_be_changed(admin: Admin) -> None:
    persistence = {"bookkeeperEnsemble": 2, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2}
    inactive = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 10,
        "deleteWhileInactive": True,
    }
    for on, target, name, value, found in [
        ("namespaces", admin.namespace, "NamespaceReplicationClusters", ["other"], ["standalone"]),
        ("namespaces", admin.namespace, "NamespaceAllowedClusters", ["standalone"], []),
        ("namespaces", admin.namespace, "MaxUnackedMessagesPerSubscription", 7, 0),
        ("namespaces", admin.namespace, "SubscribeRate", {"subscribeThrottlingRatePerConsumer": 5}, None),
        ("namespaces", admin.namespace, "ReplicatorDispatchRate", DISPATCH, None),
        ("namespaces", admin.namespace, "DeduplicationSnapshotInterval", 5, None),
        ("namespaces", admin.namespace, "SubscriptionExpirationTime", 5, None),
        ("namespaces", admin.namespace, "OffloadThreshold", 5, -1),
        ("namespaces", admin.namespace, "EncryptionRequiredStatus", True, False),
        ("namespaces", admin.namespace, "SubscriptionAuthMode", "Prefix", "None"),
        ("namespaces", admin.namespace, "NamespaceResourceGroup", "g", ""),
        ("namespaces", admin.namespace, "NamespaceAntiAffinityGroup", "g", ""),
        ("namespaces", admin.namespace, "NamespaceEntryFilters", {"entryFilterNames": "x"}, None),
        ("topicPolicies", admin.topic, "MaxUnackedMessagesOnSubscription", 7, 0),
        ("topicPolicies", admin.topic, "SubscribeRate", {"subscribeThrottlingRatePerConsumer": 5}, None),
        ("topicPolicies", admin.topic, "ReplicatorDispatchRate", DISPATCH, None),
        ("topicPolicies", admin.topic, "DeduplicationSnapshotInterval", 5, None),
        ("topicPolicies", admin.topic, "MaxMessageSize", 1000, None),
        ("topicPolicies", admin.topic, "OffloadPolicies", {"managedLedgerOffloadDriver": "s3"}, None),
    ]:
        assert admin(on, f"get{name}", target) == found, name
        admin.refused(on, f"set{name}", target, value)
    admin("namespaces", "setNamespaceReplicationClusters", admin.namespace, ["standalone"])
    for on, target, delayed in (
        ("namespaces", admin.namespace, "DelayedDelivery"),
        ("topicPolicies", admin.topic, "DelayedDeliveryPolicy"),
    ):
        assert admin(on, "getPersistence", target)["bookkeeperAckQuorum"] == 1
        assert admin(on, f"get{delayed}", target)["active"] is True
        assert admin(on, "getInactiveTopicPolicies", target)["deleteWhileInactive"] is False
        admin.refused(on, "setPersistence", target, persistence)
        admin.refused(on, "setInactiveTopicPolicies", target, inactive)
    assert admin("topicPolicies", "getEntryFiltersPerTopic", admin.topic, False) is None
    assert admin("topicPolicies", "getSchemaCompatibilityStrategy", admin.topic, True) == "FULL"


def test_what_is_not_done_here_says_why(admin: Admin) -> None:
    for on, method, *given in [
        ("clusters", "createCluster", "x", {"serviceUrl": "http://127.0.0.1:1"}),
        ("clusters", "deleteCluster", "x"),
        ("brokers", "updateDynamicConfiguration", "a", "b"),
        ("resourceQuotas", "setDefaultResourceQuota", {"msgRateIn": 1, "dynamic": True}),
        ("namespaces", "splitNamespaceBundle", admin.namespace, "0x00000000_0xffffffff", True, None),
        ("topics", "triggerOffload", admin.topic, "latest"),
        ("topics", "setReplicatedSubscriptionStatus", admin.topic, "s", True),
        ("functions", "getFunctions", "public", "default"),
        ("sinks", "listSinks", "public", "default"),
        ("sources", "listSources", "public", "default"),
        ("worker", "getCluster"),
        ("packages", "listPackages", "function", "public/default"),
        ("transactions", "listTransactionCoordinators"),
    ]:
        assert len(admin.refused(on, method, *given)) > 20


def test_schemas(admin: Admin) -> None:
    schema = {"type": "STRING", "schema": "", "properties": {}}
    topic = admin.topic
    admin("schemas", "createSchema", topic, schema)
    assert admin("schemas", "getSchemaInfo", topic)["type"] == "STRING"
    assert admin("schemas", "getSchemaInfo", topic, 0)["type"] == "STRING"
    assert admin("schemas", "getSchemaInfoWithVersion", topic)["version"] == 0
    assert len(admin("schemas", "getAllSchemas", topic)) == 1
    assert admin("schemas", "getSchemaMetadata", topic)["info"]["version"] == 0
    assert admin("schemas", "testCompatibility", topic, schema)["compatibility"] is True
    assert admin("schemas", "getVersionBySchema", topic, schema) == 0
    admin("schemas", "deleteSchema", topic)
    admin.refused("schemas", "getSchemaInfo", topic, status=404)
