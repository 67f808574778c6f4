"""The command `penstock`, run as somebody at a shell would."""

import json
import os
import pty
import signal
import subprocess
import sys
from typing import Final

PENSTOCK: Final = [sys.executable, "-m", "penstock"]


def interruptible() -> None:
    """In the child: SIGINT ends it, also where these tests run as a background job, which ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Shell:
    """Runs the command against a server."""

    def __init__(self, url: str) -> None:
        self.environment = {**os.environ, "PENSTOCK_URL": url, "COLUMNS": "120", "TERM": "dumb"}

    def run(
        self, *arguments: str, stdin: str | bytes = "", code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*PENSTOCK, *arguments],
            input=stdin if isinstance(stdin, str) else stdin.decode(errors="surrogateescape"),
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            env=self.environment,
            timeout=90,
        )
        assert done.returncode == code, done.stderr
        return done

    def lines(self, *arguments: str, stdin: str | bytes = "", code: int = 0) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.run(*arguments, stdin=stdin, code=code).stdout.splitlines()]

    def on_terminal(self, *arguments: str) -> str:
        """What somebody at a terminal sees."""
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [*PENSTOCK, *arguments], stdin=subprocess.DEVNULL, stdout=slave, env=self.environment
        )
        os.close(slave)
        seen = bytearray()
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # Linux's word for the end
                break
            if not part:
                break
            seen += part
        os.close(master)
        assert process.wait(60) == 0
        return seen.decode().replace("\r\n", "\n")
