"""What passes between a supervisor and its worker: lines of JSON on the worker's stdin and stdout."""

from pathlib import Path
from typing import Any, Final, Literal

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to run: the first line on its stdin. The rest are what `load_spec` takes."""

    file: str
    url: str = ""
    state: str = ""
    master: str = ""
    once: bool | None = None

    def overrides(self) -> dict[str, Any]:
        return {"url": self.url, "state": Path(self.state) if self.state else None, "master": self.master}


START: Final = "start"  # begin, or begin again after a failure
STOP: Final = "stop"  # after the batch that runs now
KILL: Final = "kill"  # now

Word = Literal["start", "stop", "kill"]


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the worker's: an event of the pipeline's, or a step of starting up that the supervisor may wait for."""

    event: dict[str, Any] | None = None
    waiting: str = ""
    over: bool = False  # the query is over; `error` says how
    error: str = ""
    error_class: str = ""
    retried: bool = False
    planned: bool = False  # the query has been running
