"""Tables that were declared in SQL: `CREATE TABLE t USING penstock OPTIONS (…)`.

Spark asks for such a table's schema with the options, among properties of its own, but reads it without any:
what it hands to the reader is the schema alone. So the schema carries the options, as metadata of its first
column. Only the schemas of declared tables do.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import StructField, StructType

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
