"""The schema registry: registering, looking up, deleting, levels and modes, with Confluent's codes."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.registry import OvertakenError, RegistryRecord
from penstock.codec.registered import Schema
from penstock.model.confluent import ConfluentError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.subjects import Definition, Mode, Reference
from penstock.protocols.confluent.registry import definitions, operations
from penstock.protocols.confluent.registry.endpoint import RegistryEndpoint
from penstock.protocols.confluent.registry.registry import Registry
from penstock.protocols.confluent.registry.subjects import Subjects, schema_record
from penstock.protocols.confluent.registry.table import rights
from penstock.protocols.context import ServerContext
from penstock.runtime.tasks import Tasks

STRING = Definition('"string"')
INT, LONG = Definition('"int"'), Definition('"long"')


class Records:
    """Records in memory, and registries over them."""

    def __init__(self) -> None:
        self.stored: dict[str, RegistryRecord] = {}
        self.writer = ""
        self.number_schemas = None
        self.registry, self._subjects = self._open()

    def _open(self) -> tuple[Registry, Subjects]:
        subjects = Subjects()
        for record in self.stored.values():
            subjects.learn(record)
        return Registry(subjects, self), subjects

    def again(self) -> Registry:
        """A registry that reads the records as they are stored now."""
        self.registry, self._subjects = self._open()
        return self.registry

    async def open(self, learn: Callable[[RegistryRecord], None]) -> None:
        raise NotImplementedError

    async def catch_up(self) -> None:
        pass

    async def take(self) -> None:
        pass

    async def write(self, records: Sequence[RegistryRecord], process: str) -> None:
        await asyncio.sleep(0)  # as a store: others run meanwhile
        for record in records:
            if record.value is None:
                self.stored.pop(record.key, None)
            else:
                self.stored[record.key] = record
            self._subjects.learn(record)


@pytest.fixture
def records() -> Records:
    return Records()


def record(*fields: Any, name: str = "R") -> Definition:
    return Definition(json.dumps({"type": "record", "name": name, "fields": fields}))


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


async def refused(work: Any) -> int:
    with pytest.raises(ConfluentError) as caught:
        await work
    return caught.value.code.code


def refusal(work: Any, *arguments: Any, **named: Any) -> int:
    with pytest.raises(ConfluentError) as caught:
        work(*arguments, **named)
    return caught.value.code.code


async def test_versions_and_ids_count_from_one(records: Records) -> None:
    registry = records.registry
    first = await registry.register("a-value", INT)
    assert (first.version, first.id) == (1, 1)
    assert await registry.register("a-value", Definition('{"type": "int"}')) != first  # another text
    again = await registry.register("a-value", Definition(' "int" '))
    assert again == first  # white space does not count
    third = await registry.register("a-value", LONG)
    other = await registry.register("b-value", LONG)
    assert (third.version, third.id) == (3, 3)
    assert (other.version, other.id) == (1, 3)  # one id for one schema
    assert [each.subject for each in registry.versions_of(".", 3)] == ["a-value", "b-value"]
    registry = records.again()
    assert registry.names() == ["a-value", "b-value"]
    assert registry.lookup("a-value", LONG) == third
    assert (await registry.register("c", STRING)).id == 4


async def test_registering_at_once_gives_one_id(records: Records) -> None:
    found = await asyncio.gather(*(records.registry.register(name, INT) for name in ("a", "b", "a", "c")))
    assert {each.id for each in found} == {1}
    assert [each.version for each in found] == [1, 1, 1, 1]


async def test_each_version_of_protobuf_is_read_once_to_be_compared(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    def message(fields: int) -> Definition:
        text = "".join(f"int32 x{number} = {number}; " for number in range(1, fields + 1))
        return Definition(f'syntax = "proto3"; message A {{ {text}}}', "PROTOBUF")

    for fields in (1, 2, 3):
        await records.registry.register("s", message(fields))
    registry, texts = records.again(), []
    original = definitions.read

    def counted(kind: str, text: str, references: Mapping[str, str]) -> Schema:
        texts.append(text)
        return original(kind, text, references)

    monkeypatch.setattr(definitions, "read", counted)
    for unknown in (4, 5, 6):
        assert refusal(registry.lookup, "s", message(unknown)) == 40403
    assert len(texts) == 6  # three that were asked for, and three versions
    other = Definition('syntax="proto3";\n// a note\nmessage A { int32 x1=1; int32 x2=2; }', "PROTOBUF")
    assert registry.lookup("s", other).version == 2


async def test_an_incompatible_schema_is_refused(records: Records) -> None:
    registry = records.registry
    await registry.register("a", record(field("x", "int")))
    with pytest.raises(
        ConfluentError, match='incompatible with an earlier schema for subject "a", details: '
    ) as caught:
        await registry.register("a", record(field("x", "int"), field("y", "int")))
    assert (caught.value.code.status, caught.value.code.code) == (409, 409)
    assert registry.objections("a", record(field("x", "int"), field("y", "int")), "latest")
    assert registry.objections("a", record(field("x", "int"), field("y", "int", default=0)), "latest") == []
    assert len(registry.versions("a")) == 1
    assert await refused(registry.register("a", record(field("x", "int"), name="S"))) == 409  # by name
    await registry.settings.set_config("a", {"compatibility": "none"})
    assert (await registry.register("a", Definition('{"type": "string"}', "JSON"))).version == 2


@pytest.mark.parametrize(
    ("level", "versions"),
    [("BACKWARD", [LONG, INT]), ("FORWARD", [INT, LONG]), ("FULL", [INT, LONG]), ("FULL", [LONG, INT])],
)
async def test_levels_decide_the_direction(records: Records, level: str, versions: list[Definition]) -> None:
    await records.registry.settings.set_config(None, {"compatibility": level})
    await records.registry.register("a", versions[0])
    assert await refused(records.registry.register("a", versions[1])) == 409


async def test_transitive_levels_compare_all_live_versions(records: Records) -> None:
    registry = records.registry
    await registry.settings.set_config(None, {"compatibility": "NONE"})
    for kind in ("string", "int", "long"):
        await registry.register("a", Definition(f'"{kind}"'))
    await registry.settings.set_config("a", {"compatibility": "BACKWARD_TRANSITIVE"})
    double = Definition('"double"')
    assert registry.objections("a", double, None)
    await registry.delete_version("a", "1")
    assert registry.objections("a", double, None) == []
    assert (await registry.register("a", double)).version == 4


async def test_a_soft_deleted_schema_keeps_its_id(records: Records) -> None:
    registry = records.registry
    first = await registry.register("a", INT)
    assert await refused(registry.delete_subject("a", permanent=True)) == 40405
    assert await registry.delete_subject("a") == [1]
    assert refusal(registry.versions, "a") == 40401
    assert refusal(registry.lookup, "a", INT) == 40401
    assert registry.names() == []
    assert registry.names(deleted=True) == registry.names(only_deleted=True) == ["a"]
    assert registry.by_id(".", first.id).definition == INT
    assert await refused(registry.delete_subject("a")) == 40404
    again = await registry.register("a", INT)
    assert (again.version, again.id) == (2, first.id)
    assert await registry.delete_version("a", "1", permanent=True) == 1
    assert await refused(registry.delete_version("a", "1", permanent=True)) == 40402
    assert await registry.delete_version("a", "latest") == 2
    assert await refused(registry.delete_version("a", "2")) == 40406
    assert await registry.delete_subject("a", permanent=True) == [2]
    assert refusal(registry.by_id, ".", first.id) == 40403
    assert await refused(registry.delete_subject("a")) == 40401
    assert list(records.stored) == ['{"keytype":"PENSTOCK_IDS","subject":":.:","magic":0}']
    registry = records.again()
    assert (await registry.register("a", STRING)).id == first.id + 1  # ids are not used again


async def test_a_live_version_is_not_deleted_permanently(records: Records) -> None:
    await records.registry.register("a", INT)
    assert await refused(records.registry.delete_version("a", "1", permanent=True)) == 40407


async def test_settings_go_with_the_last_version(records: Records) -> None:
    registry = records.registry
    await registry.register("a", INT)
    await registry.settings.set_config("a", {"compatibility": "FULL"})
    await registry.delete_version("a", "1")
    assert registry.settings.config("a") == {"compatibilityLevel": "FULL"}
    await registry.delete_version("a", "1", permanent=True)
    assert refusal(registry.settings.config, "a") == 40408


async def test_references_are_resolved_and_kept(records: Records) -> None:
    registry = records.registry
    inner = await registry.register("inner", record(field("x", "int"), name="shop.Inner"))
    using = Definition(
        record(field("i", "shop.Inner")).schema, references=(Reference("shop.Inner", "inner", 1),)
    )
    assert await refused(registry.register("a", msg(using, references=()))) == 42201
    assert (
        await refused(registry.register("a", msg(using, references=(Reference("shop.Inner", "inner", 2),))))
        == 42201
    )
    outer = await registry.register("a", using)
    assert registry.users("inner", "1") == [outer.id]
    assert '"shop"' in registry.resolved(outer)
    assert await refused(registry.delete_subject("inner")) == 42206
    registry = records.again()
    assert await refused(registry.delete_version("inner", "1")) == 42206
    await registry.delete_subject("a")
    assert await registry.delete_subject("inner") == [inner.version]


def msg(definition: Definition, **changes: Any) -> Definition:
    return Definition(**{name: getattr(definition, name) for name in definition.__struct_fields__} | changes)


async def test_json_and_protobuf_reference_others(records: Records) -> None:
    registry = records.registry
    await registry.register("customer", Definition('{"type": "string"}', "JSON"))
    text = '{"type": "object", "properties": {"c": {"$ref": "customer.json"}}}'
    assert await refused(registry.register("order", Definition(text, "JSON"))) == 42201
    found = await registry.register(
        "order", Definition(text, "JSON", (Reference("customer.json", "customer", 1),))
    )
    assert registry.objections("order", found.definition, "latest") == []
    await registry.register("c.proto", Definition('syntax = "proto3"; message C {}', "PROTOBUF"))
    proto = 'syntax = "proto3";\nimport "c.proto";\n// a comment\nmessage M { C c = 1; }'
    assert await refused(registry.register("m", Definition(proto, "PROTOBUF"))) == 42201
    using = Definition(proto, "PROTOBUF", (Reference("c.proto", "c.proto", 1),))
    made = await registry.register("m", using)
    assert made.definition.schema == proto  # as it was written
    assert await registry.register("m", msg(using, schema=proto.replace(" // a comment\n", ""))) == made


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        (Definition(""), "Empty schema"),
        (Definition("{"), "Invalid schema of type AVRO"),
        (Definition('{"type": "record", "name": "R"}'), "Invalid schema of type AVRO"),
        (Definition('{"type": "strin"}', "JSON"), "Invalid schema of type JSON"),
        (Definition("message {", "PROTOBUF"), "Invalid schema of type PROTOBUF"),
        (
            Definition('syntax = "proto3"; message M { int32 a = 1; int32 b = 1; }', "PROTOBUF"),
            "Invalid schema",
        ),
        (Definition("{}", "THRIFT"), "Invalid schema type THRIFT"),
    ],
)
async def test_what_cannot_be_read_is_refused(records: Records, definition: Definition, message: str) -> None:
    with pytest.raises(ConfluentError, match=message) as caught:
        await records.registry.register("a", definition)
    assert caught.value.code.code == 42201
    assert {one.key: one.value for one in records.stored.values()} == {}


@pytest.mark.parametrize("number", ["0", "-2", "x", "2147483648", "", "٣", "1" * 5000])
async def test_numbers_of_versions(records: Records, number: str) -> None:
    await records.registry.register("a", INT)
    assert refusal(records.registry.version, "a", number) == 42202
    assert refusal(records.registry.version, "a", "2") == 40402
    assert records.registry.version("a", "-1") == records.registry.version("a", "latest")


async def test_normalized_schemas_are_the_same(records: Records) -> None:
    registry = records.registry
    first = Definition(
        '{"type": "record", "namespace": "n", "name": "R", "fields": [{"name": "x", "type": {"type": "int"}}]}'
    )
    second = Definition('{"name": "n.R", "type": "record", "fields": [{"type": "int", "name": "x"}]}')
    found = await registry.register("a", first, normalize=True)
    assert await registry.register("a", second, normalize=True) == found
    assert refusal(registry.lookup, "a", second) == 40403
    await registry.settings.set_config("a", {"normalize": True})
    assert registry.lookup("a", second) == found


async def test_configurations(records: Records) -> None:
    registry = records.registry
    assert registry.settings.config(None) == {"compatibilityLevel": "BACKWARD"}
    assert refusal(registry.settings.config, "a") == 40408
    assert registry.settings.config("a", default=True) == {"compatibilityLevel": "BACKWARD"}
    assert await registry.settings.set_config(None, {"compatibility": "full"}) == {"compatibility": "FULL"}
    assert await refused(registry.settings.set_config("a", {"compatibility": "SOME"})) == 42203
    await registry.settings.set_config("a", {"compatibility": "NONE", "normalize": True})
    registry = records.again()
    assert registry.settings.config("a") == {"compatibilityLevel": "NONE", "normalize": True}
    assert await registry.settings.delete_config("a") == {"compatibilityLevel": "NONE", "normalize": True}
    assert await refused(registry.settings.delete_config("a")) == 40401
    assert await registry.settings.delete_config(None) == {"compatibilityLevel": "FULL"}
    assert registry.settings.config(None) == {"compatibilityLevel": "BACKWARD"}


async def test_what_is_no_configuration_changes_nothing(records: Records) -> None:
    registry = records.registry
    for wanted in ({}, {"compatibility": None}, {"compatibilityLevel": "full"}, {"subject": "b"}):
        assert await registry.settings.set_config("a", wanted) == {}
    assert refusal(registry.settings.config, "a") == 40408
    assert await refused(registry.settings.set_config("a", {"normalize": "false"})) == 422
    assert {one.key: one.value for one in records.stored.values()} == {}


async def test_references_are_counted_in_their_context_and_by_their_number(records: Records) -> None:
    registry = records.registry
    await registry.register("inner", STRING)
    await registry.register(":.dev:inner", record(field("x", "int"), name="I"))
    using = Definition('{"type": "array", "items": "I"}', references=(Reference("I", "inner", -1),))
    made = await registry.register(":.dev:user", using)
    assert made.definition.references == (Reference("I", "inner", 1),)
    assert registry.users(":.dev:inner", "1") == [made.id]
    assert await refused(registry.delete_subject(":.dev:inner")) == 42206
    assert await registry.delete_subject("inner") == [1]


async def test_ids_and_versions_are_bounded(records: Records) -> None:
    await records.registry.settings.set_mode("a", "IMPORT")
    for more in ({"schema_id": 2**31}, {"version": 10**25}):
        assert await refused(records.registry.register("a", INT, **more)) == 42201
    first = await records.registry.register("a", INT, schema_id=5)
    assert await records.registry.register("a", INT) == first


async def test_names_of_references_stay_as_they_are_when_normalized(records: Records) -> None:
    registry = records.registry
    await registry.register("local", record(name="Local"))
    using = record(
        field("l", "Local"),
        field("r", {"type": "record", "name": "R", "namespace": "", "fields": []}),
        name="n.R",
    )
    found = await registry.register(
        "a", msg(using, references=(Reference("Local", "local", 1),)), normalize=True
    )
    assert '"type":"Local"' in found.definition.schema
    assert registry.resolved(found)


async def test_modes(records: Records) -> None:
    registry = records.registry
    assert registry.settings.mode(None) is Mode.READWRITE
    assert refusal(registry.settings.mode, "a") == 40409
    await registry.register("a", INT)
    assert await registry.settings.set_mode("a", "readonly") is Mode.READONLY
    assert await registry.register("a", INT)  # what is there is answered
    assert await refused(registry.register("a", LONG)) == 42205
    assert await refused(registry.delete_subject("a")) == 42205
    assert await refused(registry.settings.set_mode("a", "WRITEONLY")) == 42204
    assert await refused(registry.settings.set_mode("a", "IMPORT")) == 42205
    assert await registry.settings.delete_mode("a") is Mode.READONLY
    assert await refused(registry.register("b", LONG, schema_id=17)) == 42205
    await registry.settings.set_mode("b", "IMPORT")
    made = await registry.register("b", LONG, schema_id=17, version=3)
    assert (made.version, made.id) == (3, 17)
    assert await refused(registry.register("b", STRING, schema_id=17)) == 42205
    assert (await registry.register("c", STRING)).id == 18


async def test_contexts_count_ids_for_themselves(records: Records) -> None:
    registry = records.registry
    await registry.register("a", INT)
    made = await registry.register(":.dev:a", LONG)
    assert made.id == 1
    assert registry.contexts() == [".", ".dev"]
    assert registry.names() == ["a"]
    assert registry.names(context=".dev") == [":.dev:a"]
    assert registry.names(":*:") == [":.dev:a", "a"]
    assert registry.by_id(".", 1, ":.dev:").definition == LONG
    await registry.settings.set_config(":.dev:", {"compatibility": "NONE"})
    assert (await registry.register(":.dev:a", STRING)).version == 2


@pytest.mark.parametrize("subject", ["", "a\nb", "__GLOBAL", "x" * 2000])
async def test_names_of_subjects(records: Records, subject: str) -> None:
    assert await refused(records.registry.register(subject, INT)) == 42208


async def test_records_are_those_of_the_topic(records: Records) -> None:
    await records.registry.register("a", INT)
    await records.registry.settings.set_config(None, {"compatibility": "FULL"})
    assert {one.key: one.value for one in records.stored.values()} == {
        '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}': b'{"subject":"a","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
        '{"keytype":"CONFIG","subject":null,"magic":0}': b'{"compatibilityLevel":"FULL"}',
    }


def test_records_of_other_registries_are_read() -> None:
    subjects = Subjects()
    for version in (1, 2):
        key = f'{{"keytype":"SCHEMA","subject":"a","version":{version},"magic":1}}'
        value = {
            "subject": "a",
            "version": version,
            "id": version,
            "md5": "x",
            "schema": f'"{version}"',
            "ts": 5,
        }
        subjects.learn(RegistryRecord(key, json.dumps(value).encode()))
    subjects.learn(RegistryRecord('{"keytype":"NOOP","magic":0}', None))
    subjects.learn(RegistryRecord('{"keytype":"FUTURE","subject":"a","magic":0}', b"{}"))
    subjects.learn(RegistryRecord("no JSON", b"{}"))
    subjects.learn(RegistryRecord('{"keytype":"SCHEMA","subject":"a","version":9,"magic":1}', b'{"id":"x"}'))
    kept = subjects.version("a", 2)
    assert kept is not None
    assert json.loads(schema_record(kept).value or b"") == {**value, "deleted": False}
    key = '{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}'
    subjects.learn(RegistryRecord(key, b'{"subject":"a","version":1}'))
    assert [each.version for each in subjects.versions("a")] == [2]
    assert [each.version for each in subjects.versions("a", deleted=True)] == [1, 2]
    subjects.learn(RegistryRecord('{"keytype":"CLEAR_SUBJECT","subject":"a","magic":0}', b'{"subject":"a"}'))
    assert [each.version for each in subjects.versions("a", deleted=True)] == [2]


async def test_a_change_is_made_again_after_another_process_was_faster(records: Records) -> None:
    """The other one has given the id that this one wanted to give."""
    other = Subjects()
    theirs = Registry(other, records)

    class Overtaken(Records):
        """Records in which the other process writes before this one does, once."""

        def __init__(self) -> None:
            super().__init__()
            self.tries = 0

        async def write(self, written: Sequence[RegistryRecord], process: str) -> None:
            self.tries += 1
            if self.tries == 1:
                records._subjects = other
                await theirs.register("theirs", LONG)
                for record in records.stored.values():
                    self.stored[record.key] = record
                    self._subjects.learn(record)
                raise OvertakenError
            await super().write(written, process)

    mine = Overtaken()
    found = await mine.registry.register("mine", INT)
    assert (found.id, mine.tries) == (2, 2)
    assert mine.registry.by_id(".", 1).subject == "theirs"


def test_every_operation_of_a_subject_needs_a_right() -> None:
    of_subjects = [one for one in operations.OPERATIONS if "{subject}" in one.path]
    assert len(of_subjects) > 15
    assert [one.path for one in of_subjects if one.handler not in rights] == []


async def test_a_change_goes_on_when_its_caller_leaves(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, sent, stored = Tasks(), asyncio.Event(), asyncio.Event()
    write = records.write

    async def slow(some: Sequence[RegistryRecord], process: str) -> None:
        sent.set()
        await stored.wait()  # what was sent is stored, whether or not somebody waits for it
        await write(some, process)

    monkeypatch.setattr(records, "write", slow)
    leaving = tasks.spawn(records.registry.register("a", INT), "leave")
    await sent.wait()
    leaving.cancel()
    later = tasks.spawn(records.registry.register("b", LONG), "stay")
    await asyncio.sleep(0)
    stored.set()
    assert (await later).id == 2
    assert records.registry.versions("a")[0].id == 1


async def test_the_greatest_id_is_kept_before_its_version_is_deleted(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = records.write

    async def one_record(some: Sequence[RegistryRecord], process: str) -> None:
        await write(some[:1], process)
        if len(some) > 1:
            raise ConnectionError("the process ends")

    await records.registry.register("a", INT)
    await records.registry.delete_subject("a")
    monkeypatch.setattr(records, "write", one_record)
    with pytest.raises(ConnectionError):
        await records.registry.delete_subject("a", permanent=True)
    with pytest.raises(ConnectionError):
        await records.registry.delete_version("a", "1", permanent=True)
    monkeypatch.undo()
    records.stored.pop('{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}')
    assert (await records.again().register("b", LONG)).id == 2


async def test_a_schema_with_two_ids_keeps_the_lower_one(records: Records) -> None:
    await records.registry.register("a", INT)
    await records.registry.settings.set_mode("b", "IMPORT")
    await records.registry.register("b", INT, schema_id=7)
    assert (await records.registry.register("c", INT)).id == 1
    await records.registry.delete_subject("a")  # its record is the newest now
    key = '{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    records.stored[key] = records.stored.pop(key)
    assert (await records.again().register("d", INT)).id == 1
    for permanent in (False, True):
        await records.registry.delete_subject("b", permanent=permanent)
    assert (await records.registry.register("e", INT)).id == 1


async def test_a_registry_that_cannot_be_read_learns_nothing(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> None:
        raise PenstockError(ErrorKind.UNAVAILABLE, "away")

    monkeypatch.setattr(records, "catch_up", away)
    context = SimpleNamespace(broker=SimpleNamespace(registry_records=records), fleet=None)
    endpoint = RegistryEndpoint(cast(ServerContext, context))
    for _ in range(3):
        with pytest.raises(PenstockError, match="away"):  # `open` would raise NotImplementedError
            await endpoint.load()
