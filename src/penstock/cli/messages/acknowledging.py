"""Acknowledgements concurrent with the fetching of further messages."""

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from penstock.cli.output import say
from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import PenstockError

WAITING_MAX: Final = 4  # requests; more wait


class Acknowledging:
    """Acknowledges in its own thread, in order; a context manager.

    The server answers when an acknowledgement is durable, and so all are when the context ends, however it ends.
    A failure is raised by a later `add`, or at the end; if another error ends the context it is printed to stderr.
    """

    def __init__(self, access: Access, path: str) -> None:
        self._client = HttpClient(access)
        self._path = path
        self._thread = ThreadPoolExecutor(1)
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self._client.close()
        try:
            self._settle(0)
        except PenstockError as failure:
            if error is None:
                raise
            if failure.message != str(error):
                say(f"penstock: not all that was printed is acknowledged: {failure.message}")

    def add(self, ids: Sequence[str]) -> None:
        """Acknowledge messages soon."""
        self._waiting.append(self._thread.submit(self._acknowledge, ids))
        self._settle(WAITING_MAX)

    def _settle(self, waiting_max: int) -> None:
        while len(self._waiting) > waiting_max:
            self._waiting.popleft().result()

    def _acknowledge(self, ids: Sequence[str]) -> None:
        self._client.call("POST", self._path, body={"type": "individual", "messageIds": ids})
