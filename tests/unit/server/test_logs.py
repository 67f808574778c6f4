import json
import logging
import sys

from penstock.server.logs import ConsoleFormatter, JsonFormatter


def record(**extra: object) -> logging.LogRecord:
    made = logging.LogRecord("penstock.x", logging.WARNING, __file__, 1, "%s is full", ("it",), None)
    vars(made).update(extra)
    return made


def test_a_json_line_holds_the_event_and_what_was_given_beside_it() -> None:
    line = json.loads(JsonFormatter().format(record(topic="t", odd={1, 2}.__class__)))
    assert line["event"] == "it is full"
    assert line["level"] == "warning"
    assert line["logger"] == "penstock.x"
    assert line["topic"] == "t"
    assert line["odd"] == "<class 'set'>"
    assert line["time"].endswith("+00:00")


def test_an_exception_is_told_in_both_forms() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        failed = logging.LogRecord("x", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    assert "ValueError: no" in json.loads(JsonFormatter().format(failed))["exception"]
    assert "ValueError: no" in ConsoleFormatter().format(failed)


def test_a_console_line_is_readable() -> None:
    line = ConsoleFormatter().format(record(topic="t"))
    assert line.endswith("warning it is full topic='t'")
