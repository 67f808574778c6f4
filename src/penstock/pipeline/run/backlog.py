"""How much there is for a run that ends by itself: asked before Java starts, which is started accordingly.

An upper bound will do, as nothing but speed hangs on it. Imports no Spark.
"""

import json
from contextlib import nullcontext, suppress
from typing import Final

from penstock.model.errors import PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.http.calls import Caller, Calls
from penstock.pipeline.http.logs import look
from penstock.pipeline.source.marks import Key, LogPosition, Marks, reach, read_marks
from penstock.pipeline.spec.spec import Source, Spec

from .folder import Folder

# Up to about 800,000 messages of a third of a kilobyte a run costs less CPU without Java's slow compiler (decision 0086).
MESSAGES_MAX: Final = 500_000
BYTES_MAX: Final = 250_000_000


def is_short(spec: Spec, folder: Folder, client: Caller | None = None) -> bool:
    """Whether a run that processes what is there is over soon. Not if that is unknown beforehand: of a pattern's topics, of
    other formats, and of tables that are joined."""
    if spec.tables or any(source.pattern or source.format for source in spec.sources.values()):
        return False
    reached = last_marks(folder)
    messages = size = 0
    try:
        with nullcontext(client) if client is not None else Calls(spec.server) as caller:
            for source in spec.sources.values():
                count, taken = _backlog(caller, source, reached)
                messages, size = messages + count, size + taken
    except PenstockError:
        return False  # it will be said when the run asks
    return messages <= MESSAGES_MAX and size <= BYTES_MAX


def _backlog(caller: Caller, source: Source, reached: Marks) -> tuple[int, int]:
    """Messages to be read, and about how many bytes they take."""
    logs = look(caller, [TopicName.parse(topic).base for topic in source.topics]).logs or []
    waiting = reach(reached, logs).backlog
    size = 0
    for log in logs:
        held = log.latest - log.earliest
        size += log.bytes * waiting[Key(log.topic, log.partition)] // held if held else 0
    return sum(waiting.values()), size


def last_marks(folder: Folder) -> Marks:
    """How far the last batch went that is over; no marks before there is one."""
    spots: dict[Key, LogPosition] = {}
    with suppress(OSError, ValueError, PenstockError):
        if (last := folder.last_committed()) >= 0:
            for line in folder.offsets(last)[1:]:
                spots |= read_marks(json.loads(line)).spots
    return Marks(spots)
