"""How much of our code a plain publish over REST passes: whoever follows one has to read all of it."""

import asyncio
import sys
from collections.abc import MutableMapping
from pathlib import Path
from types import FrameType
from typing import Any

import penstock
from penstock.server.app import App, build
from penstock.server.config import Config, DataSettings

# From the ASGI application's entry to its answer, over a memory store.
FILES_MAX = 20
FRAMES_MAX = 10

SOURCES = f"{Path(penstock.__file__).parent}/"


class Passed:
    """A profile function: the files that were passed, and our frames from the ASGI entry to the topic's append."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.frames: list[str] = []

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(SOURCES):
            return
        name = frame.f_code.co_filename.removeprefix(SOURCES)
        if name not in self.files:
            self.files.append(name)
        if frame.f_code.co_name == "append" and not self.frames:
            at: FrameType | None = frame
            while at is not None:
                if at.f_code.co_filename.startswith(SOURCES):
                    self.frames.append(f"{at.f_code.co_filename.removeprefix(SOURCES)}: {at.f_code.co_name}")
                at = at.f_back


async def publish(app: App) -> int:
    """Publish one message with default options; the answer's status."""
    status = 0
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/topics/public/default/t",
        "raw_path": b"/topics/public/default/t",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"messages":[{"value":"hello"}]}'}

    async def send(event: MutableMapping[str, Any]) -> None:
        nonlocal status
        status = event.get("status", status)

    await app.asgi(scope, receive, send)
    return status


async def second_publish() -> Passed:
    app = build(Config(data=DataSettings(store="memory")))
    await app.context.broker.start()
    passed = Passed()
    try:
        assert await publish(app) == 200  # makes the topic, its producer and its schema
        sys.setprofile(passed)
        try:
            assert await publish(app) == 200
        finally:
            sys.setprofile(None)
    finally:
        await app.close()
    return passed


def test_a_plain_publish_passes_few_files_and_frames() -> None:
    passed = asyncio.run(second_publish())
    assert "engines/core/topic/topic.py: append" in passed.frames[:1]
    assert len(passed.frames) <= FRAMES_MAX, passed.frames
    assert len(passed.files) <= FILES_MAX, passed.files
