"""Notifications to the service manager, if it asks for them (`Type=notify`; sd_notify(3))."""

import contextlib
import os
import socket
from typing import Final

VARIABLE: Final = "NOTIFY_SOCKET"  # of the environment: its address
READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def notify(state: str) -> None:
    """Notify the service manager, if any. A manager that does not listen is not an error."""
    address = os.environ.get(VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    if address.startswith("@"):  # a name in the abstract namespace
        address = "\0" + address[1:]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.send(state.encode())
