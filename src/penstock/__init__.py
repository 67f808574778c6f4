"""Penstock: the web's way to a log of messages, over HTTP, WebSocket and Pulsar's protocol.

`penstock.Client` is the blocking client and `penstock.aio.Client` the one for asyncio (docs/client.md). They are
imported when they are first used, so that `import penstock` costs next to nothing.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from penstock.client.api import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if not name.startswith("_"):
        from penstock.client import api

        if name in api.__all__:
            return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
