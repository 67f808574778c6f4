"""Everything of the admin API from the command line: each declared operation is asked for by some command.

The commands run in this process, against a server; what they send is noted and looked up in the server's own table.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.main import main
from penstock.client.http import HttpClient
from penstock.protocols.admin.operations import AdminOperation
from penstock.protocols.admin.routes import OPERATIONS, Paths
from penstock.testing.server import running

# Operations that have no command, with the reason.
OTHER_WORDS = {
    "{bundle}": "a namespace is one bundle: the commands of the namespace do the same",
    "/property/{key}/{value}": "namespaces properties --set",
    "GET /admin/v2/namespaces/{tenant}/{namespace}/property/{key}": "namespaces properties shows them all",
    "/terminate/partitions": "topics terminate ends the partitions, too",
    "/broker-stats/destinations": "an older name of broker-stats/topics",
}

Answer = list[dict[str, Any]]


class Commands:
    """Runs commands and notes which operations they ask for."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: set[tuple[str, str]] = set()
        self._url = url
        fetch, paths = HttpClient.fetch, Paths(OPERATIONS)

        def noted(client: HttpClient, method: str, path: str, **more: Any) -> Any:
            operation = paths.find(method, path).operation
            if operation is not None:
                self.asked.add((operation.method, operation.path))
            return fetch(client, method, path, **more)

        monkeypatch.setattr(HttpClient, "fetch", noted)

    def __call__(self, words: str, *more: str, code: int = 0) -> Answer:
        said, wrong = StringIO(), StringIO()
        with redirect_stdout(said), redirect_stderr(wrong), pytest.raises(SystemExit) as end:
            main(["--url", self._url, *words.split(), *more])
        assert end.value.code == code, f"{words}: {wrong.getvalue()}"
        assert (
            code != 1 or said.getvalue() or re.fullmatch("penstock: .*\n", wrong.getvalue())
        )  # one sentence
        return [json.loads(line) for line in said.getvalue().splitlines()]


@pytest.fixture
def penstock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Commands]:
    with running() as server:
        yield Commands(server.url, monkeypatch)


def test_every_operation_has_a_command(penstock: Commands, tmp_path: Path) -> None:
    stories: tuple[Callable[[Commands], None], ...] = (
        namespaces_and_tenants,
        topics,
        messages_by_place,
        subscriptions,
        policies,
        permissions,
        server,
        words_of_pulsar_admin,
    )
    for story in stories:
        story(penstock)
    schemas(penstock, tmp_path)
    missing = [
        f"{operation.method} {operation.path}"
        for operation in OPERATIONS
        if (operation.method, operation.path) not in penstock.asked and not excused(operation)
    ]
    assert missing == []


def excused(operation: AdminOperation) -> bool:
    """What is the same for every server of one process, or has other words: `penstock api` reaches it."""
    name = f"{operation.method} {operation.path}"
    return operation.fixed or any(part in name for part in OTHER_WORDS)


def namespaces_and_tenants(penstock: Commands) -> None:
    penstock("tenants create acme --admin-role alice -r bob")
    assert penstock("tenants describe acme")[0]["adminRoles"] == ["alice", "bob"]
    penstock("tenants update acme --admin-roles carol,dave")
    [row] = [row for row in penstock("tenants list") if row["tenant"] == "acme"]
    assert row["adminRoles"] == ["carol", "dave"]
    assert penstock("namespaces create acme/shop") == [{"namespace": "acme/shop"}]
    assert penstock("namespaces list acme") == [{"namespace": "acme/shop"}]
    assert {"namespace": "public/default"} in penstock("namespaces list")
    penstock("namespaces properties acme/shop --set a=1 --set b=2 --set c=3")
    assert penstock("namespaces properties acme/shop --remove a") == [{"b": "2", "c": "3"}]
    assert penstock("namespaces properties acme/shop --clear --yes") == [{}]
    penstock("topics create acme/shop/orders --partitions 2")
    assert len(penstock("namespaces topics acme/shop")) == 2
    assert penstock("namespaces topics acme/shop --mode non_persistent") == []
    penstock("subscriptions create acme/shop/orders one")
    penstock("namespaces clear-backlog acme/shop")
    penstock("namespaces clear-backlog acme/shop -s one")
    penstock("namespaces unload acme/shop")
    penstock("namespaces unsubscribe acme/shop one")
    assert penstock("subscriptions list acme/shop/orders") == []
    assert penstock("namespaces describe acme/shop")[0]["schema_validation_enforced"] is False
    penstock("namespaces delete acme/shop", code=1)
    penstock("namespaces delete acme/shop --force")
    penstock("tenants delete acme --force")


def topics(penstock: Commands) -> None:
    penstock("topics create flat --property x=y")
    penstock("topics create wide -p 2 --property x=y")
    assert penstock("topics properties wide --set z=1") == [{"x": "y", "z": "1"}]
    assert penstock("topics properties wide --remove x") == [{"z": "1"}]
    assert penstock("topics properties flat --clear") == [{}]
    assert penstock("topics list --partitioned") == [{"topic": "persistent://public/default/wide"}]
    assert {row["partitions"] for row in penstock("topics list")} == {0, 2}
    assert len(penstock("topics partitions wide --set 3")) == 3
    assert len(penstock("topics update-partitioned-topic wide -p 4")) == 4
    penstock("produce flat a b c")
    assert penstock("topics describe flat")[0]["messages"] == 3
    assert penstock("topics stats flat")[0]["msgInCounter"] == 3
    assert set(penstock("topics stats wide --per-partition")[0]["partitions"]) == {
        f"persistent://public/default/wide-partition-{number}" for number in range(4)
    }
    assert penstock("topics internal-stats flat")[0]["entriesAddedCounter"] == 1
    assert len(penstock("topics internal-stats wide")[0]["partitions"]) == 4
    penstock("topics internal-info flat")
    assert penstock("topics lookup flat")[0]["brokerUrl"].startswith("pulsar://")
    assert penstock("topics compaction-status flat")[0]["status"] == "NOT_RUN"
    penstock("topics create compacted")
    penstock("topics compact compacted")
    for action in ("unload", "trim"):
        assert penstock(f"topics {action} flat") == [{"topic": "persistent://public/default/flat"}]
    assert penstock("topics backlog-size flat")[0]["bytes"] > 0
    penstock("topics truncate flat")
    assert penstock("read flat") == []
    assert "last" in penstock("topics terminate flat --yes")[0]
    for topic in ("flat --keep-schema", "wide --force"):
        penstock(f"topics delete {topic}")


def messages_by_place(penstock: Commands) -> None:
    penstock("produce placed first --key k --property p=q")
    penstock("produce placed last")
    [last] = penstock("topics last-message-id placed")
    place = (str(last["ledgerId"]), str(last["entryId"]))
    assert penstock("topics message placed", *place)[0]["payload"].endswith("last")
    [first] = penstock("topics examine placed --from earliest")
    assert (first["payload"], first["key"], first["properties"]) == ("first", "k", {"p": "q"})
    assert penstock("topics message-id placed --at 2h")[0]["entryId"] == 0
    assert penstock("topics get-message-id placed --at 0")[0]["entryId"] == 0


def subscriptions(penstock: Commands) -> None:
    penstock("topics create backlog")
    penstock("subscriptions create backlog all --from earliest")
    penstock("produce backlog", *(f"m{number}" for number in range(10)))
    assert penstock("subscriptions list backlog --names") == [{"subscription": "all"}]
    assert [one["payload"] for one in penstock("subscriptions peek backlog all -n 3")] == ["m0", "m1", "m2"]
    assert penstock("subscriptions analyze-backlog backlog all")[0]["messages"] == 10

    def backlog() -> int:
        [row] = penstock("subscriptions list backlog")
        return int(row["backlog"])

    penstock("subscriptions skip backlog all 4")
    assert backlog() == 6
    assert penstock("subscriptions peek backlog all")[0]["payload"] == "m4"
    penstock("subscriptions skip-all backlog all")
    assert backlog() == 0
    assert penstock("subscriptions peek backlog all") == []
    for place in ("earliest", "2h", "2013-01-01T05:00"):
        penstock("subscriptions reset backlog all --to", place)
        assert backlog() == 10
        penstock("subscriptions clear-backlog backlog all")
    [message] = penstock("read backlog --from 3 --count 1")
    penstock("subscriptions reset backlog all --to", message["messageId"])
    assert backlog() == 6
    [last] = penstock("topics last-message-id backlog")
    penstock("subscriptions reset backlog all --to earliest")
    penstock("subscriptions expire backlog all --older-than 1h")
    penstock("subscriptions expire backlog --all --older-than 1h")
    assert backlog() == 10
    penstock("subscriptions expire backlog all --until", f"{last['ledgerId']}:{last['entryId']}")
    assert backlog() == 0
    penstock("subscriptions expire backlog all", code=2)
    assert penstock("subscriptions properties backlog all --set a=b") == [{"a": "b"}]
    assert penstock("subscriptions properties backlog all --clear") == [{}]
    penstock("subscriptions delete backlog all --yes")
    assert penstock("subscriptions list backlog") == []


VALUES = {
    "retention": "--time 90m --size 10G",
    "message-ttl": "1h",
    "compaction-threshold": "100M",
    "publish-rate": "--messages 100 --bytes 1M",
    "dispatch-rate": "--messages 100 --period 10s",
    "subscription-dispatch-rate": "-md 100 -bd 1M",
    "deduplication": "--enable",
    "auto-topic-creation": "--enable --partitions 3",
    "auto-subscription-creation": "--disable",
    "subscription-types-enabled": "Shared,Failover",
    "schema-compatibility-strategy": "full",
    "schema-validation-enforce": "--disable",
    "is-allow-auto-update-schema": "--enable",
    "backlog-quota": "--limit-size 10G --policy producer_exception",
}


def policies(penstock: Commands) -> None:
    penstock("topics create ruled")
    for target in ("public/default", "ruled"):
        rows = {row["policy"]: row["value"] for row in penstock(f"policies list {target}")}
        for name in rows:
            [done] = penstock(f"policies set {name} {target} {VALUES.get(name, '7')}")
            [found] = penstock(f"policies get {name} {target}")
            assert found["value"] not in (None, rows[name]) or name in (
                "schema-validation-enforce",
                *ALIKE,
            ), name
            assert done["policy"] == found["policy"] == name
        assert penstock(f"policies get retention {target}")[0]["value"] == {
            "retentionTimeInMinutes": 90,
            "retentionSizeInMB": 10240,
        }
        penstock(
            f"policies set backlog-quota {target} -t message_age --limit-time 3d -p consumer_backlog_eviction"
        )
        assert len(penstock(f"policies get backlog-quota {target}")[0]["value"]) == 2
        for name in rows:
            if name not in ALIKE and name != "schema-validation-enforce":
                penstock(f"policies remove {name} {target}")
        penstock(f"policies remove backlog-quota {target} -t message_age")
        assert penstock(f"policies get message-ttl {target}")[0]["value"] is None
        assert penstock(f"policies get backlog-quota {target}")[0]["value"] == {}
    penstock("namespaces set-message-ttl public/default -ttl 60")  # as pulsar-admin says it
    assert penstock("policies get message-ttl ruled --applied")[0]["value"] == 60
    penstock("namespaces set-schema-compatibility-strategy public/default -c BACKWARD")
    penstock("topics set-max-producers ruled -p 3")
    assert penstock("topics get-max-producers ruled")[0]["value"] == 3
    penstock("policies remove all ruled")
    assert penstock("topics get-max-producers ruled")[0]["value"] is None
    penstock("policies set max-topics-per-namespace ruled 3", code=2)
    penstock("policies set message-ttl ruled", code=2)
    penstock("policies get retention public/default --applied", code=2)


ALIKE = (
    "is-allow-auto-update-schema",
    "schema-compatibility-strategy",
)  # not removable; the first is as it was


def permissions(penstock: Commands) -> None:
    penstock("topics create granted")
    penstock("permissions grant public/default alice produce consume")
    penstock("permissions grant granted --role bob --actions consume,produce")  # as pulsar-admin says it
    rows = {row["role"]: sorted(row["actions"]) for row in penstock("permissions list granted")}
    assert rows == {"alice": ["consume", "produce"], "bob": ["consume", "produce"]}
    penstock("permissions revoke granted bob")
    penstock("permissions revoke granted bob", code=1)
    penstock("permissions revoke public/default alice")
    assert penstock("permissions list public/default") == []
    penstock("permissions grant granted bob read", code=2)


def schemas(penstock: Commands, folder: Path) -> None:
    file = folder / "r.avsc"
    record = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    file.write_text(json.dumps(record))
    assert penstock("schemas register schemed", str(file))[0]["version"] == 0
    assert penstock("schemas diff schemed", str(file)) == []
    record["fields"] = [{"name": "a", "type": "long"}, {"name": "b", "type": "string", "default": ""}]
    file.write_text(json.dumps(record))
    assert penstock("schemas version schemed", str(file), code=1) == [{"version": -1}]
    assert penstock("schemas check schemed", str(file))[0]["isCompatibility"]
    differences = [
        {"change": "changed", "at": "fields.a.type", "old": "int", "new": "long"},
        {"change": "added", "at": "fields.b", "new": {"name": "b", "type": "string", "default": ""}},
    ]
    assert penstock("schemas diff schemed", str(file), code=1) == differences
    penstock("schemas post schemed", str(file))
    assert penstock("schemas diff schemed", code=1) == differences
    assert penstock("schemas diff schemed 0", code=1) == differences
    assert [one["change"] for one in penstock("schemas diff schemed 1 0", code=1)] == ["changed", "removed"]
    assert penstock("schemas version schemed", str(file)) == [{"version": 1}]
    assert [row["version"] for row in penstock("schemas metadata schemed")] == [0, 1]
    assert len(penstock("schemas list schemed")) == 2
    assert (
        penstock("schemas show schemed --version 0")[0]["version"]
        == penstock("schemas get schemed")[0]["version"] - 1
    )
    penstock("schemas delete schemed")
    penstock("schemas show schemed", code=1)
    assert penstock("schemas show schemed --version 1 --deleted")[0]["version"] == 1
    penstock("schemas upload schemed", str(file))
    penstock("schemas delete schemed --force")
    penstock("schemas list schemed", code=1)


def server(penstock: Commands) -> None:
    assert penstock("brokers health") == [{"value": "ok"}]
    assert str(penstock("brokers version")[0]["value"]).startswith("penstock-")
    assert len(penstock("brokers list")) == 1
    assert penstock("brokers configuration")[0]["clusterName"] == "standalone"
    assert any(name.startswith("public/default/") for name in penstock("brokers namespaces")[0])
    assert penstock("brokers clusters") == [{"cluster": "standalone"}]
    assert "brokerServiceUrl" in penstock("brokers clusters standalone")[0]
    for command in ("topics", "metrics", "socket-metrics", "sockets", "leader"):
        penstock(f"brokers {command}")
    penstock("topics create quiet")
    assert penstock("brokers sockets quiet") == [{"producerStats": [], "consumerStats": []}]
    assert penstock("api GET /admin/v2/brokers/ready") == [{"value": "ok"}]
    assert penstock("api GET /admin/v2/namespaces/public/default/topics -q mode=NON_PERSISTENT") == []
    assert (
        penstock("api PUT /admin/v2/persistent/public/default/raw/partitions --data 2")[0]["method"] == "PUT"
    )
    penstock("api GET /admin/v2/nothing", code=1)
    penstock("api GET admin", code=2)


def words_of_pulsar_admin(penstock: Commands) -> None:
    penstock("topics create-partitioned-topic words -p 2")
    assert penstock("topics get-partitioned-topic-metadata words")[1]["partition"] == 1
    penstock("topics create-subscription words -s sub -m earliest")
    assert penstock("topics subscriptions words")[0]["subscription"] == "sub"
    penstock("topics update-subscription-properties words -s sub -p a=b")
    assert penstock("topics get-subscription-properties words -s sub") == [{"a": "b"}]
    penstock("produce words x")
    assert penstock("topics peek-messages words -s sub -n 1")[0]["payload"] == "x"
    penstock("topics reset-cursor words -s sub -t 1h")
    penstock("topics expire-messages words -s sub -t 60")
    penstock("topics expire-messages-all-subscriptions words -t 60")
    penstock("topics clear-backlog words -s sub")
    penstock("topics clear-backlog words", code=2)
    penstock("topics create-partitioned-topic narrow -p 1")
    penstock("topics create-subscription narrow-partition-0 -s sub")
    penstock("topics skip narrow-partition-0 -s sub -n 1")
    penstock("topics grant-permission words --role alice --actions produce,consume")
    assert penstock("topics permissions words")[0]["role"] == "alice"
    penstock("topics revoke-permission words --role alice")
    assert penstock("topics update-properties words -p a=1") == [{"a": "1"}]
    assert penstock("topics remove-properties words -k a") == [{}]
    penstock("topics set-retention words -t 90m -s 100M")
    assert penstock("topicPolicies get-retention words")[0]["value"]["retentionSizeInMB"] == 100
    penstock("topics set-backlog-quota words -l 10G -p producer_exception")
    assert "destination_storage" in penstock("topics get-backlog-quotas words")[0]["value"]
    penstock("topicPolicies remove-backlog-quota words")
    assert penstock("namespaces policies public/default")[0]["message_ttl_in_seconds"] == 60
    penstock("namespaces clear-properties public/default")
    penstock("topics unsubscribe words -s sub")
    penstock("topics delete-partitioned-topic words")
    assert penstock("brokers healthcheck") == [{"value": "ok"}]
    penstock("topics set-retentoin words", code=2)
