"""The columns of a query: what its options make, how values are decoded, and the options of declared tables.

A table may be declared in SQL: `CREATE TABLE t USING penstock OPTIONS (…)`. Spark asks for such a table's schema with
the options, among properties of its own, but reads it without any: what it hands to the reader is the schema alone.
So the schema carries the options, as metadata of its first column. Only the schemas of declared tables do.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import StructField, StructType

from penstock.client.http import HttpClient
from penstock.pipeline.decode.plan import Plan, make_plan
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.rows import columns

from .discovery import ask, check_there
from .options import Options, parse_options

_METADATA: Final = "penstock.options"

# A declared table's properties have each option twice, once behind this prefix; all else there is Spark's.
_PREFIX: Final = "option."


def given_options(options: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """The user's own options, and whether they are those of a declared table."""
    declared = {key.removeprefix(_PREFIX): text for key, text in options.items() if key.startswith(_PREFIX)}
    return (declared, True) if declared else (dict(options), False)


def carry(schema: StructType, options: Mapping[str, str]) -> StructType:
    """`schema` with the options in it."""
    first = schema.fields[0]
    metadata = {_METADATA: json.dumps(dict(options), sort_keys=True)}
    return StructType([StructField(first.name, first.dataType, metadata=metadata), *schema.fields[1:]])


def carried(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """The options to read with: those that the schema carries, and the reader's own, which win."""
    found: dict[str, Any] = {}
    if schema.fields and _METADATA in (schema.fields[0].metadata or {}):
        found = json.loads(schema.fields[0].metadata[_METADATA])
    return found | given_options(options)[0]


def table_schema(given: Mapping[str, str]) -> StructType:
    """The columns that a query's options make."""
    options, declared = given_options(given)
    parsed = parse_options(options)
    schema = _table_columns(parsed, plan_for(parsed))
    return carry(schema, options) if declared else schema


def check_schema(schema: StructType, options: Options, plan: Plan | None = None) -> None:
    """A schema that the user gave must be the table's own: columns are chosen with `include`."""
    given, expected = schema.simpleString(), _table_columns(options, plan).simpleString()
    if given != expected:
        raise PipelineError(
            f"the schema given is {given}, but these options make {expected}; leave it out, and choose columns"
            " with option include"
        )


def plan_for(options: Options, given: StructType | None = None) -> Plan | None:
    """How the query's values are decoded, planned once on the driver; None where they stay bytes.

    `given` is the schema that an earlier plan made: Spark asks for it first, and reads with it later. Raises
    PipelineError, as `make_plan`.
    """
    if options.typed is None:
        return None
    with HttpClient(options.server) as client:
        topics = [str(topic) for topic in options.topics]
        if options.pattern is not None:
            topics = sorted({state.topic for state in ask(client, options).logs or []})
        else:
            check_there(options, ask(client, options))
        return make_plan(client, options.typed, options.server, topics, given)


def _table_columns(options: Options, plan: Plan | None) -> StructType:
    plain = columns.spark_schema(options.include)
    return plain if plan is None else plan.columns(plain)
