"""Errors are told apart by what Spark leaves of them: text."""

import pytest
from pyspark.errors import AnalysisException, PySparkException

from penstock.client.http import RemoteError
from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.errors import DataLoss, PipelineError, SchemaChanged
from penstock.pipeline.run.failures import NEW_CHECKPOINT, READINGS, ErrorClass, cause_of

OURS = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/penstock/pipeline/source/fetch.py", line 42, in fetch
    raise DataLoss(
penstock.pipeline.errors.DataLoss: [PENSTOCK_DATA_LOSS] t, partition 0: offsets 1 to 2 are gone
 SQLSTATE: 38000

\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1)
\tat java.base/java.lang.Thread.run(Thread.java:840)
"""

USERS = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 12, in main
    process()
  File "/home/me/steps.py", line 7, in half
    return 1 // 0
ZeroDivisionError: integer division or modulo by zero
"""

AWAY = """[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform latestOffset:
Traceback (most recent call last):
  File "/x/penstock/client/http.py", line 117, in call
    raise _unreachable(self.url, error) from error
penstock.model.errors.PenstockError: http://127.0.0.1:1 cannot be reached: [Errno 111] Connection refused
 SQLSTATE: 38000
"""


class Spark(PySparkException):
    """What Spark raises, without a JVM."""

    def __init__(self, text: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self._desc = text
        self._cause = cause


class Java(Exception):
    """What py4j raises where Java failed."""

    def __init__(self, text: str) -> None:
        super().__init__(f"An error occurred while calling o1.start.\n: {text}")
        self.java_exception = self
        self._text = text

    def getMessage(self) -> str:
        return self._text


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (DataLoss("gone"), ErrorClass.DATA_LOSS, "gone"),
        (SchemaChanged("version 3"), ErrorClass.NEW_SCHEMA, "version 3"),
        (PipelineError("wrong"), ErrorClass.PLAN, "wrong"),
        (PenstockError(ErrorKind.UNAVAILABLE, "away"), ErrorClass.BROKER, "away"),
        (RemoteError(403, 40301, "not yours"), ErrorClass.ACCESS, "not yours"),
        (PenstockError(ErrorKind.INCOMPATIBLE_SCHEMA, "unfit"), ErrorClass.SCHEMA, "unfit"),
        (OSError("disk"), ErrorClass.UNKNOWN, "OSError: disk"),
        (Spark(OURS), ErrorClass.DATA_LOSS, "t, partition 0: offsets 1 to 2 are gone"),
        (
            Spark("Identifier: p [id = 1]", Spark("", Spark(OURS))),
            ErrorClass.DATA_LOSS,
            "t, partition 0: offsets 1 to 2 are gone",
        ),
        (
            Spark(USERS),
            ErrorClass.USER_CODE,
            "ZeroDivisionError: integer division or modulo by zero (/home/me/steps.py, line 7, in half)",
        ),
        (
            Spark(AWAY),
            ErrorClass.BROKER,
            "http://127.0.0.1:1 cannot be reached: [Errno 111] Connection refused",
        ),
        (
            Spark("[USER_RAISED_EXCEPTION] expectation 'e' of v does not hold: n > 0 SQLSTATE: P0001"),
            ErrorClass.EXPECTATION,
            "expectation 'e' of v does not hold: n > 0",
        ),
        (Spark("\nsomething broke\n\nmore"), ErrorClass.UNKNOWN, "something broke"),
        (
            Spark(
                "Job aborted: x",
                Spark("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE] Provided key schema does not"),
            ),
            ErrorClass.PLAN,
            NEW_CHECKPOINT,
        ),
        (
            Spark(
                "java.lang.AssertionError: assertion failed: There are [2] sources in the checkpoint offsets and now there"
                " are [1] sources requested by the query. Cannot continue."
            ),
            ErrorClass.PLAN,
            READINGS,
        ),
        (
            Spark(
                OURS.replace("DataLoss: [PENSTOCK_DATA_LOSS]", "PipelineError:").replace(
                    "are gone", "are new (option onNewSchema=fail)"
                )
            ),
            ErrorClass.SCHEMA,
            "t, partition 0: offsets 1 to 2 are new (option onNewSchema=fail)",
        ),
        (Java("no such class\n\tat org.apache.X(Y.scala:1)"), ErrorClass.UNKNOWN, "no such class"),
    ],
)
def test_class_and_sentence(error: Exception, kind: ErrorClass, sentence: str) -> None:
    cause = cause_of(error)
    assert (cause.kind, cause.sentence) == (kind, sentence)


def test_what_analysis_refuses_is_the_plans_fault() -> None:
    error = AnalysisException(
        "[UNRESOLVED_COLUMN] A column with name `a` cannot be resolved. SQLSTATE: 42703; line 1 pos 7;\n'Project ['a]"
    )
    assert cause_of(error)[:2] == (
        ErrorClass.PLAN,
        "A column with name `a` cannot be resolved (line 1, column 8)",
    )


@pytest.mark.parametrize("kind", list(ErrorClass))
def test_only_what_may_pass_is_tried_again(kind: ErrorClass) -> None:
    assert kind.retried == (kind in (ErrorClass.NEW_SCHEMA, ErrorClass.BROKER, ErrorClass.UNKNOWN))


SQL = """[CAST_INVALID_INPUT] The value 'a' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018
== SQL (line 1, position 11) ==
SELECT *, CAST(text AS INT) AS n FROM first
          ^^^^^^^^^^^^^^^^^

"""

CALLED = """Traceback (most recent call last):
  File "/x/site-packages/py4j/clientserver.py", line 644, in _call_proxy
  File "/x/penstock/pipeline/run/query.py", line 9, in __call__
pyspark.errors.exceptions.captured.NumberFormatException: {}"""


@pytest.mark.parametrize("text", [SQL, CALLED.format(SQL)])
def test_a_value_that_a_query_does_not_take_is_the_users(text: str) -> None:
    cause = cause_of(Spark(text))
    assert (cause.kind, cause.code) == (ErrorClass.USER_CODE, "CAST(text AS INT)")
    assert cause.sentence == (
        'The value \'a\' of the type "STRING" cannot be cast to "INT" (in CAST(text AS INT))'
    )


def test_the_place_is_the_users_own_line() -> None:
    """Not that of a library which it calls."""
    trace = """Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 12, in main
  File "/home/me/steps.py", line 7, in half
  File "/usr/lib/python3.11/json/decoder.py", line 3, in decode
json.decoder.JSONDecodeError: Expecting value
"""
    cause = cause_of(Spark(trace))
    assert (cause.kind, cause.code) == (ErrorClass.USER_CODE, "/home/me/steps.py")
    assert cause.sentence == "JSONDecodeError: Expecting value (/home/me/steps.py, line 7, in half)"


@pytest.mark.parametrize(
    ("said", "kind", "sentence"),
    [
        (
            "PermissionError: [Errno 13] Permission denied: '/d/t'",
            ErrorClass.ACCESS,
            "/d/t: Permission denied",
        ),
        (
            "OSError: [Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device",
            ErrorClass.UNKNOWN,
            "No space left on device",
        ),
    ],
)
def test_what_the_system_refuses_to_us(said: str, kind: ErrorClass, sentence: str) -> None:
    trace = f"""Traceback (most recent call last):
  File "/x/penstock/pipeline/lake/files.py", line 7, in __init__
  File "/usr/lib/python3.11/pathlib.py", line 3, in mkdir
{said}
"""
    cause = cause_of(Spark(trace))
    assert (cause.kind, cause.sentence) == (kind, sentence)
