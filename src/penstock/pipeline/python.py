"""The Python that Spark runs on this machine: a script in front of `fork_server`, which is started here.

Elsewhere than on Linux there is no such server, and the script only keeps Spark from compiling PySpark in each process.
"""

import atexit
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_CLIENT: Final = Path(__file__).with_name("fork_client.py")
_SCRIPTS: Final[list[Path]] = []  # the one there is
_SERVER: Final = "penstock.pipeline.fork_server"


def fork_script(scratch: Path | None) -> str:
    """What PYSPARK_PYTHON is to be: a script, in `scratch` or a folder that goes when this process ends.

    This process's interpreter where no script can be run there.
    """
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        return sys.executable
    if not _SCRIPTS:
        _SCRIPTS.append((_own_folder() if scratch is None else scratch) / "python")
    (script,) = _SCRIPTS  # always the same: Java keeps the path that it was started with
    server = _server_name() if sys.platform == "linux" else ""
    archives = Path(pyspark.origin).parent / "python" / "lib"
    words = shlex.join([sys.executable, "-I", "-S", str(_CLIENT), server, str(archives)])
    script.parent.mkdir(parents=True, exist_ok=True)
    new = script.with_name("python.new")
    new.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    new.chmod(0o700)
    new.replace(script)
    return str(script) if os.access(script, os.X_OK) else sys.executable  # a folder may be mounted noexec


def _own_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="penstock-python-"))  # mkdtemp lets no other user in
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _server_name() -> str:
    """Start the server, once in this process; the name of its socket, which is in no folder. It ends with us."""
    name = f"penstock-{uuid.uuid4().hex}"
    environment = os.environ | {
        "PYTHONHASHSEED": "0",  # as Spark has it, for all that it starts
        "OMP_NUM_THREADS": "1",  # too, and a process with threads is none to fork from
    }
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0" + name)
        listening.listen(socket.SOMAXCONN)
        server = subprocess.Popen(
            [sys.executable, "-u", "-m", _SERVER, str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=(listening.fileno(),),
            env=environment,
            preexec_fn=_ignore_interrupts,
        )
    atexit.register(_end, server)
    return name


def _end(server: subprocess.Popen[bytes]) -> None:
    """As the end of this process would, which a kill leaves it to."""
    server.kill()
    server.communicate()


def _ignore_interrupts() -> None:
    """Ctrl-C is the driver's to hear, as it is for the JVM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
