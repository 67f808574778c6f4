"""The end by Ctrl-C or SIGTERM of a command that must not end at just any place."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self

import click

TERMINATED: Final = 143  # what shells say of a command that SIGTERM ended
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Ending:
    """Within it SIGINT raises KeyboardInterrupt and SIGTERM click's Exit, so that what has to be left is left.

    While it is `held` the first signal waits until that ends. The second one does not: output may be stuck.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._held = False
        self._came: int | None = None

    def __enter__(self) -> Self:
        heard = [one for one in _SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]  # not under nohup
        self._before = {one: signal.signal(one, self._on_signal) for one in heard}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Finish this block before a signal ends the process."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._came is not None:
            _end(self._came)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._held and self._came is None:
            self._came = number
            return
        _end(number)


def _end(number: int) -> None:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise click.exceptions.Exit(TERMINATED)
