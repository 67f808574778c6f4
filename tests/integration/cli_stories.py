"""What administrators do from the command line, told by area; `test_cli_admin` tells all of it to one server."""

from tests.support.cli import Commands


def namespaces_and_tenants(penstock: Commands) -> None:
    penstock("tenants create acme --admin-role alice -r bob")
    assert penstock("tenants describe acme")[0]["adminRoles"] == ["alice", "bob"]
    updated = penstock("tenants update acme --admin-role carol -r dave")
    assert updated == [{"tenant": "acme", "adminRoles": ["carol", "dave"]}]
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
    for command in ("subscriptions delete acme/shop/orders .. --yes", "namespaces unsubscribe acme/shop ."):
        penstock(command, code=1)  # an HTTP client would take such a name out of the path
    assert [row["subscription"] for row in penstock("subscriptions list acme/shop/orders")] == ["one"]
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
    assert len(penstock("topics partitions wide --set 4")) == 4
    penstock("produce flat a b c")
    assert penstock("topics describe flat")[0]["messages"] == 3
    assert penstock("topics stats flat")[0]["msgInCounter"] == 3
    assert set(penstock("topics stats wide --per-partition")[0]["partitions"]) == {
        f"persistent://public/default/wide-partition-{number}" for number in range(4)
    }
    assert penstock("topics internal-stats flat")[0]["entriesAddedCounter"] >= 1
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

    penstock("subscriptions skip backlog all 4 --yes")
    assert backlog() == 6
    assert penstock("subscriptions peek backlog all")[0]["payload"] == "m4"
    penstock("subscriptions skip-all backlog all")
    assert backlog() == 0
    assert penstock("subscriptions peek backlog all") == []
    for place in ("earliest", "2h", "2013-01-01T05:00"):
        penstock("subscriptions reset backlog all --to", place)
        assert backlog() == 10
        penstock("subscriptions skip-all backlog all")
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
