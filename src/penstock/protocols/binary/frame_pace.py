"""Whether a frame that has begun comes to its end in time."""

from penstock.protocols.limits import Limits
from penstock.wire.frames import FrameDecoder


class FramePace:
    """Of one connection. Within each `body_ms` some of a frame has to come, at `min_bytes_per_s`.

    Time in which the client is not read does not count, unless it is for its principal's share: that may be full of such
    frames.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._frame = 0  # the frame that is not complete: which, since when, and how much of it had come then
        self._since_ms = self._bytes = 0

    def check(self, decoder: FrameDecoder, now_ms: int, *, held_up: bool) -> str:
        """Called at intervals; returns why the connection must be cut, or ""."""
        limits = self._limits
        if held_up or not decoder.held or decoder.begun != self._frame:
            self._frame, self._since_ms, self._bytes = decoder.begun, now_ms, decoder.held
            return ""
        passed, came = now_ms - self._since_ms, decoder.held - self._bytes
        if passed < limits.body_ms:
            return ""
        self._since_ms, self._bytes = now_ms, decoder.held
        if came * 1000 >= limits.min_bytes_per_s * passed:
            return ""
        return (
            f"a frame did not come within limits.body_ms = {limits.body_ms} ms, "
            f"nor at limits.min_bytes_per_s = {limits.min_bytes_per_s}"
        )
