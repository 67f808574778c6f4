"""Programs that use the official clients of other languages: each runs steps by name, for a whole session of tests.

A program reads one line of JSON for each step and answers with one line. `User.run` returns the value of the step or
raises `StepFailed`. The programs are built by `make clients`; see `build.sh`.
"""

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.testing.server import Address

HERE: Final = Path(__file__).parent
BUILD: Final = HERE / "build"
STEP_S: Final = 150.0  # a program answers "hangs" before that by itself
JAVA: Final = [
    "java",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # it is short-lived: starting fast is worth more than running fast
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
]
LIBRARIES: Final = str(BUILD / "java" / "lib" / "*")
COMMANDS: Final = {
    "java": [*JAVA, "-cp", os.pathsep.join([str(BUILD / "java" / "classes"), LIBRARIES]), "Main"],
    "go": [str(BUILD / "go" / "client")],
    "rust": [str(BUILD / "rust" / "target" / "debug" / "clients")],
}


class StepFailed(Exception):
    """A step ended with an error: what kind, and what it said."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class User:
    """One program, running."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self._process = process
        self._errors = errors
        self._rest = b""

    def run(self, step: str, **args: Any) -> Any:
        """The value that a step returns."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"step": step, "args": args}).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._line())
        if "error" in answer:
            print(self._errors.read_text(errors="replace")[-4000:])
            raise StepFailed(answer["error"], answer.get("message", ""))
        return answer.get("ok")

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        until = time.monotonic() + STEP_S
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._process.stdout.fileno(), 1 << 16) if readable else b""
            if not piece:
                said = self._errors.read_text(errors="replace")[-4000:]
                raise AssertionError(f"the program {'ended' if readable else 'does not answer'}: {said}")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line


@contextlib.contextmanager
def user(language: str, server: Address, folder: Path) -> Iterator[User]:
    """The program of a language, beside a server; skips the test where it could not be built."""
    skip_unless_built(language)
    errors = folder / f"{language}.log"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            [*COMMANDS[language], server.pulsar, server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    try:
        yield User(process, errors)
    finally:
        process.kill()
        process.communicate()


def skip_unless_built(language: str) -> None:
    """Skip the test where the program of a language could not be built, or was not."""
    missing = BUILD / language / "missing"
    if missing.exists():
        pytest.skip(f"the {language} client: {missing.read_text().strip()}")
    if not (BUILD / language / ".built").exists():
        pytest.skip(f"the {language} client is not built: run `make clients`")
