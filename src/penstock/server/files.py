"""How many files the process may have open: a connection is one."""

import logging
import resource
from typing import Final

log = logging.getLogger(__name__)

OTHERS: Final = 256  # files that are no connections: the store, logs, what is being accepted


def allow_connections(connections: int) -> int:
    """Raise the soft limit as far as so many connections need and the hard limit lets; returns what it is now.

    Where that is too little, the log says so: connections beyond it are not accepted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))
    except (OSError, ValueError) as error:  # macOS has a limit of its own below an unlimited one
        log.warning("the limit of open files stays", extra={"files": soft, "reason": str(error)})
        return soft
    if allowed < wanted:
        log.warning(
            "the system lets fewer connections in than limits.max_connections",
            extra={"files": allowed, "wanted": wanted, "remedy": "ulimit -Hn"},
        )
    return max(soft, allowed)
