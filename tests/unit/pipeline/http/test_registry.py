"""Schemas asked of a registry: what goes over the wire, and what is remembered."""

import json

import pytest
from tests.unit.pipeline.http.test_calls import serving

from penstock.client.access import Access
from penstock.codec import codec_for
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.schema import SchemaType
from penstock.pipeline.http.registry import schema_by_id, schema_of_subject

LINE = 'syntax = "proto3"; message Line { string product = 1; }'
ORDER = 'syntax = "proto3"; import "line.proto"; message Order { repeated Line lines = 1; }'


def answer(status: bytes, body: object) -> bytes:
    return status + b"|" + json.dumps(body).encode()


def test_a_schema_is_asked_for_once_with_what_it_refers_to() -> None:
    order = {
        "schema": ORDER,
        "schemaType": "PROTOBUF",
        "references": [{"name": "line.proto", "subject": "lines", "version": 3}],
    }
    line = {"id": 1, "version": 3, "subject": "lines", "schema": LINE, "schemaType": "PROTOBUF"}
    answers = [answer(b"200 OK", order), answer(b"200 OK", line)]
    with serving(answers) as (url, came):
        for _ in range(2):
            schema = schema_by_id(Access(url=url), "a/b", 7)
            assert schema is not None
            assert schema.type is SchemaType.PROTOBUF_NATIVE
            value = {"lines": [{"product": "tea"}]}
            assert codec_for(schema).decode(codec_for(schema).encode(value)) == value
    assert [each.split(b" ")[1] for each in came] == [
        b"/schemas/ids/7?subject=a%2Fb",
        b"/subjects/lines/versions/3",
    ]


def test_a_schema_that_is_not_there_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGISTRY_AUTH", "me:secret\n")
    missing = answer(b"404 Not Found", {"error_code": 40403, "message": "Schema not found"})
    with serving([missing], [answer(b"200 OK", {"schema": '"string"'})]) as (url, came):
        access = Access(url=f"{url}/registry", basic_env="REGISTRY_AUTH")
        assert schema_by_id(access, "s", 7) is None
        assert schema_by_id(access, "s", 7, False) is None
        assert schema_by_id(access, "s", 7) is not None
        assert schema_by_id(access, "s", 7, False) is not None
    assert came[0].startswith(b"GET /registry/schemas/ids/7?subject=s ")
    assert b"Authorization: Basic bWU6c2VjcmV0\r\n" in came[0]


@pytest.mark.parametrize(
    "said",
    [
        answer(b"200 OK", {"hello": 1}),
        b"404 Not Found|<title>default backend - 404</title>",
        answer(b"404 Not Found", {"error_code": 404, "message": "HTTP 404 Not Found"}),
    ],
)
def test_what_is_no_registry_is_named(said: bytes) -> None:
    with serving([said]) as (url, _):
        with pytest.raises(PenstockError, match="does not answer as a schema registry does") as wrong:
            schema_of_subject(Access(url=url), "s")
        assert wrong.value.kind is ErrorKind.UNAVAILABLE


def test_a_password_that_is_not_there_is_named() -> None:
    with pytest.raises(PenstockError, match="the environment variable NO_SUCH holds no USER:PASSWORD"):
        schema_of_subject(Access(url="http://127.0.0.1:1", basic_env="NO_SUCH"), "s")
