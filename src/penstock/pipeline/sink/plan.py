"""Whether a plan keeps its rows in order when a task is repeated."""

import re
from typing import Any, Final

from pyspark.sql import DataFrame

# Operators of Spark's physical plans after which rows come as the network brings them.
_SHUFFLES: Final = re.compile(r"\b(Exchange|ShuffleExchange|Coalesce|CollectLimit|Window|Sort)\b")


def shuffles(frame: DataFrame) -> bool:
    """Whether Spark moves rows between tasks to compute `frame`: then `delivery=sequence` is not for it."""
    java: Any = frame._jdf
    jvm: Any = frame.sparkSession._jvm
    text = str(jvm.PythonSQLUtils.explainString(java.queryExecution(), "simple"))
    return _SHUFFLES.search(text) is not None
