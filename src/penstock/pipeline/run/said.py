"""What pipelines said of themselves on the system topic."""

import json
from typing import Any, Final

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind, PenstockError

from .report import SYSTEM_TOPIC

LOOKED_AT: Final = 5000  # the newest messages of the topic


def last_events(server: Access | str) -> list[dict[str, Any]]:
    """The last event of each pipeline, by name. Raises what HttpClient raises."""
    found: dict[str, dict[str, Any]] = {}
    with HttpClient(server) as client:
        try:
            log = client.offsets(SYSTEM_TOPIC, 0)
        except PenstockError as error:
            if error.kind in (ErrorKind.TOPIC_NOT_FOUND, ErrorKind.NAMESPACE_NOT_FOUND):
                return []
            raise
        at = max(log.earliest, log.latest - LOOKED_AT)
        while at < log.latest:
            messages = client.read(SYSTEM_TOPIC, offset=at, max_messages=1000)["messages"]
            if not messages:
                break
            for message in messages:
                event = json.loads(message["value"])
                found[event["pipeline"]] = event
            at = messages[-1]["offset"] + 1
    return [found[name] for name in sorted(found)]
