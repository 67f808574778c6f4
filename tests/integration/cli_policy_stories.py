"""The same, of policies, permissions, schemas and the server, and what a shell completes."""

import json
from pathlib import Path

from tests.support.cli import Commands

VALUES = {
    "retention": "--time 90m --size 10G",
    "message-ttl": "1h",
    "compaction-threshold": "100M",
    "publish-rate": "--messages 100 --bytes 1M",
    "dispatch-rate": "--messages 100 --period 10s",
    "subscription-dispatch-rate": "--messages 100 --bytes 1M",
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
    penstock("policies set message-ttl public/default 60")
    assert penstock("policies get message-ttl ruled --applied")[0]["value"] == 60
    penstock("policies set schema-compatibility-strategy public/default BACKWARD")
    penstock("policies set max-producers-per-topic ruled 3")
    assert penstock("policies get max-producers-per-topic ruled")[0]["value"] == 3
    penstock("policies remove all ruled")
    assert penstock("policies get max-producers-per-topic ruled")[0]["value"] is None
    penstock("policies set max-topics-per-namespace ruled 3", code=2)
    penstock("policies set message-ttl ruled", code=2)
    for words in ("topics get-message-ttl ruled", "policies set message-ttl ruled --messageTTL 1"):
        penstock(words, code=2)  # pulsar-admin's words are not ours
    penstock("policies get retention public/default --applied", code=2)


ALIKE = (
    "is-allow-auto-update-schema",
    "schema-compatibility-strategy",
)  # not removable; the first is as it was


def permissions(penstock: Commands) -> None:
    penstock("topics create granted")
    penstock("permissions grant public/default alice produce consume")
    penstock("permissions grant granted bob consume produce")
    rows = {row["role"]: sorted(row["actions"]) for row in penstock("permissions list granted")}
    assert rows == {"alice": ["consume", "produce"], "bob": ["consume", "produce"]}
    penstock("permissions revoke granted bob")
    penstock("permissions revoke granted bob", code=1)
    penstock("permissions revoke public/default alice")
    assert penstock("permissions list public/default") == []
    penstock("permissions grant granted bob read", code=2)
    penstock("permissions grant granted bob", code=2)


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
    penstock("schemas register schemed", str(file))
    assert penstock("schemas diff schemed", code=1) == differences
    assert penstock("schemas diff schemed 0", code=1) == differences
    assert [one["change"] for one in penstock("schemas diff schemed 1 0", code=1)] == ["changed", "removed"]
    assert penstock("schemas version schemed", str(file)) == [{"version": 1}]
    assert [row["version"] for row in penstock("schemas metadata schemed")] == [0, 1]
    assert len(penstock("schemas list schemed")) == 2
    assert (
        penstock("schemas show schemed --version 0")[0]["version"]
        == penstock("schemas show schemed")[0]["version"] - 1
    )
    penstock("schemas delete schemed")
    penstock("schemas show schemed", code=1)
    assert penstock("schemas show schemed --version 1 --deleted")[0]["version"] == 1
    penstock("schemas register schemed", str(file))
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


def completions(penstock: Commands) -> None:
    penstock("topics create completed-a -p 2")
    penstock("topics create completed-b")
    assert penstock.completed("topics describe", "compl") == ["completed-a", "completed-b"]
    assert penstock.completed("topics describe", "public/default/completed-a") == [
        "public/default/completed-a"
    ]
    full = "persistent://public/default/completed-b"
    assert penstock.completed("subscriptions list", full[:-1]) == [full[:-1] + "a", full]
    assert penstock.completed("namespaces describe", "pub") == ["public/"]
    assert penstock.completed("namespaces describe", "public/") == ["public/default"]
    assert penstock.completed("namespaces describe", "nobody/") == []
    for words in ("policies get retention", "permissions list"):
        assert penstock.completed(words, "compl") == ["completed-a", "completed-b"]
        assert penstock.completed(words, "pub") == ["public/"]
        assert penstock.completed(words, "public/d") == ["public/default"]
        assert penstock.completed(words, "public/default/completed-b") == ["public/default/completed-b"]
        assert penstock.completed(words, full[:-1]) == [full[:-1] + "a", full]
    assert penstock.completed("policies get", "message") == ["message-ttl"]
    assert penstock.completed("--url http://127.0.0.1:1 topics describe", "comp") == []
