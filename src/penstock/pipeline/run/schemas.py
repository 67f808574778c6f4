"""Schemas that a pipeline's file, or a test of it, names: of a topic, of a subject in a schema registry, or in a file."""

import re
from functools import partial
from pathlib import Path
from typing import Final

from penstock.model.names import TopicName
from penstock.model.schema import SchemaInfo, SchemaType
from penstock.pipeline.decode.framed import Writers
from penstock.pipeline.errors import PipelineError, as_pipeline_errors
from penstock.pipeline.http.calls import Calls
from penstock.pipeline.http.registry import schema_by_id, schema_of_subject
from penstock.pipeline.http.schemas import all_versions
from penstock.pipeline.spec.spec import OF_REGISTRY, OF_TOPIC, Spec

_IMPORT: Final = re.compile(r"^\s*import\s+(?:public\s+|weak\s+)?\"([^\"]+)\"\s*;", re.MULTILINE)


@as_pipeline_errors()
def schema_for(spec: Spec, text: str) -> SchemaInfo:
    """The schema that `reader_schema` of a foreign source names. Raises PipelineError."""
    if text.startswith(OF_TOPIC):
        return _of_topic(spec, text.removeprefix(OF_TOPIC))
    if text.startswith(OF_REGISTRY):
        subject, version = _versioned(text.removeprefix(OF_REGISTRY))
        assert spec.schema_registry is not None
        found = schema_of_subject(spec.schema_registry, subject, version or "latest")
        if found is None:
            raise PipelineError(
                f"reader_schema: the schema registry has no {version or 'version'} of {subject}"
            )
        return found
    kind, _, rest = text.partition(":")
    try:
        if kind == "protobuf":
            return protobuf_schema(spec.folder, rest)
        data = rest.encode() if rest.lstrip()[:1] in tuple('{["') else Path(spec.folder, rest).read_bytes()
    except OSError as error:
        raise PipelineError(f"reader_schema: {rest} cannot be read: {error.strerror or error}") from None
    return SchemaInfo(SchemaType[kind.upper()], data)


def writers_for(spec: Spec, text: str) -> Writers | None:
    """With a schema registry in `reader_schema`, the function that asks it for the schema of an id."""
    if not text.startswith(OF_REGISTRY):
        return None
    assert spec.schema_registry is not None
    return partial(schema_by_id, spec.schema_registry, _versioned(text.removeprefix(OF_REGISTRY))[0])


def protobuf_schema(folder: Path, text: str) -> SchemaInfo:
    """The schema of a `.proto` file, `FILE` or `FILE#MESSAGE` (by default its first message), or of such a file's text.

    Imports of a file are in its folder. Raises PipelineError and OSError.
    """
    from penstock.codec.proto.native import of_proto, with_root

    message, content = "", text
    imports: dict[str, str] = {}
    if "{" not in text:
        file, _, message = text.partition("#")
        path = Path(folder, file)
        content = path.read_text("utf-8")
        waiting = _IMPORT.findall(content)
        while waiting:
            name = waiting.pop()
            if name not in imports and (path.parent / name).is_file():  # the others are Protobuf's own
                imports[name] = (path.parent / name).read_text("utf-8")
                waiting += _IMPORT.findall(imports[name])
    try:
        schema = of_proto(content, imports)
    except ValueError as error:
        raise PipelineError(f"the Protobuf schema is not understood: {error}") from None
    if not message:
        return schema
    found = with_root(schema, message)
    if found is None:
        raise PipelineError(f"{text}: the file has no message {message}")
    return found[1]


def _of_topic(spec: Spec, text: str) -> SchemaInfo:
    topic, version = _versioned(text)
    with Calls(spec.server) as client:
        versions = all_versions(client, str(TopicName.parse(topic)))
    number = int(version) if version else max(versions, default=-1)
    if number not in versions:
        there = f"version {version}; there are {', '.join(map(str, versions))}" if versions else "registered"
        raise PipelineError(f"reader_schema: {topic} has no schema {there}")
    return versions[number]


def _versioned(text: str) -> tuple[str, str]:
    """A name, and the version that may follow it."""
    name, _, version = text.rpartition(":")
    return (name, version) if name and version.isdecimal() else (text, "")
