"""W3C Trace Context in headers and in properties."""

import pytest

from penstock.protocols.trace import PARENT, STATE, trace_of, traced

VALID = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_valid_parent_and_its_states() -> None:
    headers = [(b"traceparent", VALID), (b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
    assert trace_of(headers) == {PARENT: VALID.decode(), STATE: "a=1,b=2"}


def test_a_later_version_may_say_more() -> None:
    assert trace_of([(b"traceparent", b"01" + VALID[2:] + b"-more")]) == {PARENT: "01" + VALID[2:].decode()}


@pytest.mark.parametrize(
    "parent",
    [
        b"",
        VALID + b"-more",
        VALID.upper(),
        b"ff" + VALID[2:],
        b"00-" + b"0" * 32 + VALID[35:],
        VALID[:36] + b"0" * 16 + VALID[52:],
        VALID[:-1],
    ],
)
def test_what_is_no_parent(parent: bytes) -> None:
    assert trace_of([(b"traceparent", parent), (b"tracestate", b"a=1")]) is None


def test_two_parents_are_none() -> None:
    assert trace_of([(b"traceparent", VALID), (b"traceparent", VALID)]) is None


def test_a_state_alone_or_too_long_is_left_out() -> None:
    assert trace_of([(b"tracestate", b"a=1")]) is None
    assert trace_of([(b"traceparent", VALID), (b"tracestate", b"a=" + b"1" * 600)]) == {
        PARENT: VALID.decode()
    }


def test_a_message_may_have_a_trace_of_its_own() -> None:
    trace = {PARENT: VALID.decode()}
    assert traced(None, trace) == trace
    assert traced({"a": "b"}, trace) == {"a": "b", **trace}
    assert traced({PARENT: "own"}, trace) == {PARENT: "own"}
