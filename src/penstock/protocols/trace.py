"""W3C Trace Context, carried from a request into the properties of its messages, and with them out again.

https://www.w3.org/TR/trace-context/: `traceparent` is `version-trace id-parent id-flags` in lower-case hex, and
`tracestate` goes along with a valid one only.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

PARENT: Final = "traceparent"
STATE: Final = "tracestate"

STATE_BYTES_MAX: Final = 512  # what the standard asks every system to carry

_PARENT: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?", re.DOTALL
)
_STATE: Final = re.compile(rb"[\x20-\x7e]*")


def trace_of(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str] | None:
    """The properties that carry on the trace of a request; None without a valid one."""
    parent: bytes | None = None
    states: list[bytes] = []
    for name, value in headers:
        if name == b"traceparent":
            if parent is not None:
                return None  # two say nothing
            parent = value.strip()
        elif name == b"tracestate":
            states.append(value.strip())
    if parent is None or _PARENT.fullmatch(parent) is None:
        return None
    if parent[:2] == b"00" and len(parent) != 55:
        return None
    found = {PARENT: parent[:55].decode()}
    state = b",".join(part for part in states if part)
    if state and len(state) <= STATE_BYTES_MAX and _STATE.fullmatch(state):
        found[STATE] = state.decode()
    return found


def traced(properties: Mapping[str, str] | None, trace: Mapping[str, str]) -> dict[str, str]:
    """A message's properties with the request's trace, unless the message names one."""
    if properties and PARENT in properties:
        return dict(properties)
    return {**(properties or {}), **trace}
