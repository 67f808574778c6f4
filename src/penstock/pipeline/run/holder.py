"""The process that runs a pipeline, as its lease in an object store names it."""

import os
import socket
from functools import cache
from pathlib import Path
from uuid import uuid4

import msgspec


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process. `boot` is the run of its machine and where its `pid` counts, `beat` another text each time."""

    host: str
    boot: str
    pid: int
    beat: str


def this_process() -> Holder:
    """What is written into a lease now."""
    return Holder(host=socket.gethostname(), boot=_boot(), pid=os.getpid(), beat=str(uuid4()))


def dead(holder: Holder) -> bool:
    """Whether it was a process of this machine, and is no more. Of other machines nothing is known."""
    if (holder.host, holder.boot) != (socket.gethostname(), _boot()):
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


@cache
def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        # Containers of one machine may have one host's name.
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
