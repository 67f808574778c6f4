"""How a query's values are decoded, planned once on the driver; None where they stay bytes."""

from pyspark.sql.types import StructType

from penstock.client.http import HttpClient
from penstock.pipeline.decode.plan import Plan, make_plan
from penstock.pipeline.rows import columns

from .discovery import ask, check_there
from .options import Options


def plan_for(options: Options, given: StructType | None = None) -> Plan | None:
    """`given` is the schema that an earlier plan made: Spark asks for it first, and reads with it later.

    Raises PipelineError, as `make_plan`.
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


def table_columns(options: Options, plan: Plan | None) -> StructType:
    """The table's columns."""
    plain = columns.spark_schema(options.include)
    return plain if plan is None else plan.columns(plain)
