"""OpenLineage run events: which datasets a pipeline reads and writes, and how its run goes (https://openlineage.io/spec).

They are sent if `[lineage]` or the environment names a URL.
"""

import json
import os
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

from penstock import __version__
from penstock.model.errors import PenstockError
from penstock.pipeline.spec.spec import Spec

from .datasets import TIMEOUT_S, Dataset, find_datasets

RUNNING_S: Final = 60.0  # between two events of a run that goes on

_SPEC: Final = "https://openlineage.io/spec"
_PRODUCER: Final = f"urn:penstock:{__version__}"
_TYPES: Final = {
    "starting": "START",
    "running": "RUNNING",
    "idle": "RUNNING",
    "restarting": "OTHER",
    "stopped": "COMPLETE",
    "failed": "FAIL",
}


def lineage_url(spec: Spec) -> str:
    """The address that takes run events; empty if there is none."""
    if os.environ.get("OPENLINEAGE_DISABLED", "").lower() == "true":
        return ""
    url = spec.lineage.url or os.environ.get("OPENLINEAGE_URL", "")
    endpoint = os.environ.get("OPENLINEAGE_ENDPOINT", "api/v1/lineage")
    return f"{url.rstrip('/')}/{endpoint.lstrip('/')}" if url else ""


@contextmanager
def lineage_sender(spec: Spec) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that takes a pipeline's events and sends run events. It raises nothing."""
    run, url = LineageRun(spec), lineage_url(spec)

    def send(event: Mapping[str, Any]) -> None:
        made = run.event(event)
        if made is None:
            return
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENLINEAGE_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(url, json.dumps(made).encode(), headers, method="POST")  # noqa: S310
        with suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310
            pass

    yield send


class LineageRun:
    """Makes the run events of one run, in the order of its events."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._found: tuple[list[Dataset], list[Dataset]] | None = None
        self._running_at = float("-inf")

    def event(self, event: Mapping[str, Any]) -> dict[str, Any] | None:
        """The run event for an event of the pipeline; None for a RUNNING event within a minute of the last one."""
        type_ = _TYPES[event["state"]]
        if type_ == "RUNNING":
            if time.monotonic() - self._running_at < RUNNING_S:
                return None
            self._running_at = time.monotonic()
        if self._found is None:
            with suppress(PenstockError):  # the server is away: a later event of the run has them
                self._found = find_datasets(self._spec)
        inputs, outputs = self._found or ([], [])
        spec = self._spec
        namespace = spec.lineage.namespace or os.environ.get("OPENLINEAGE_NAMESPACE") or "default"
        kind = {
            "processingType": "BATCH" if spec.once else "STREAMING",
            "integration": "PENSTOCK",
            "jobType": "JOB",
        }
        facets = {}
        if event.get("error"):
            error = {"message": event["error"], "programmingLanguage": "PYTHON"}
            facets["errorMessage"] = _facet("1-0-0", "ErrorMessageRunFacet", error)
        return {
            "eventType": type_,
            "eventTime": datetime.fromtimestamp(event["at"] / 1000, UTC).isoformat(timespec="milliseconds"),
            "run": {"runId": event["run_id"], "facets": facets},
            "job": {
                "namespace": namespace,
                "name": spec.name,
                "facets": {"jobType": _facet("2-0-3", "JobTypeJobFacet", kind)},
            },
            "inputs": inputs,
            "outputs": outputs,
            "producer": _PRODUCER,
            "schemaURL": f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
        }


def _facet(version: str, name: str, fields: dict[str, Any]) -> dict[str, Any]:
    url = f"{_SPEC}/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": _PRODUCER, "_schemaURL": url, **fields}
