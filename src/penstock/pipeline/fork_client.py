"""Stands for a Python process that `fork_server` forked: `python -I -S fork_client.py SOCKET ARCHIVES ARGUMENTS`.

Imports nothing but what starts within milliseconds. Says to the server what Java wants, and waits for the child's
end, whose exit code is its own. Becomes the interpreter itself where the server is not there, and for anything but
`-m`.

ARCHIVES is a folder: PySpark's sources in archives, which Java puts before the installed packages on the path. They hold
the same modules, but no compiled ones: each process would compile them again. They are taken off the path.
"""

import json
import os
import signal
import socket
import struct
import sys


def main() -> None:
    """Hand over, or become the interpreter."""
    name, archives, *arguments = sys.argv[1:]
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [path for path in own if path and not path.startswith(archives + os.sep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    if name and len(arguments) > 1 and arguments[0] == "-m":
        try:
            with socket.socket(socket.AF_UNIX) as server:
                server.connect("\0" + name)
                ask(server, arguments[1], arguments[2:], kept)
                code = wait(server)
        except OSError:
            code = None
        if code is not None:
            sys.exit(code if code >= 0 else 128 - code)
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - no shell is wanted


def ask(server: socket.socket, module: str, arguments: list[str], path: list[str]) -> None:
    """Send what is wanted, with this process's stdin, stdout and stderr."""
    wanted = {
        "module": module,
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes as long to import as all the rest
        "path": path,
    }
    body = json.dumps(wanted).encode()
    socket.send_fds(server, [struct.pack("!I", len(body))], [0, 1, 2])
    server.sendall(body)


def wait(server: socket.socket) -> int | None:
    """The child's exit code, below 0 for a signal; None where there is no child."""
    waiting = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, waiting)
    child = read(server)
    if child is None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, waiting)
        return None
    devnull = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # the child's alone, so that their ends are seen
        os.dup2(devnull, number)
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, waiting)
    code = read(server)
    return 1 if code is None else code  # None: the server was killed, and nobody knows


def read(server: socket.socket) -> int | None:
    """The next number that the server says; None at its end."""
    said = b""
    while len(said) < 4:
        part = server.recv(4 - len(said))
        if not part:
            return None
        said += part
    (number,) = struct.unpack("!i", said)
    return int(number)


if __name__ == "__main__":
    main()
