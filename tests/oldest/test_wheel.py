"""What a user installs: the wheel as it is built, served on the oldest dependencies that it allows.

They are in an environment of their own (scripts/oldest.sh), without anything that only developers have.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pulsar
import pytest
from scripts.check_dist import problems

ROOT = Path(__file__).parents[2]
BUILD = Path(__file__).parent / "build"
READY = "penstock ready "
START_S = 60.0
COMMAND_S = 120.0

CLIENT = """
import sys, penstock
with penstock.Client(sys.argv[1]) as client:
    client.create_producer("wheel").send(b"by the client")
"""


def environment(**more: str) -> dict[str, str]:
    """This process's without its Python's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | more


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist, built of the sources."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, capture_output=True, timeout=COMMAND_S)
    return folder


@pytest.fixture(scope="module")
def penstock(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """A command of the oldest environment with the wheel: `penstock("-m", "penstock", …)`."""
    python = BUILD / "venv" / "bin" / "python"
    if not python.exists():
        missing = BUILD / "missing"
        pytest.skip(
            missing.read_text().strip() if missing.exists() else "`make test` installs the oldest set"
        )
    site = tmp_path_factory.mktemp("site")
    [wheel] = dist.glob("*.whl")
    install = [
        python,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-compile",
        "--no-deps",
        "--no-index",
        "-t",
        site,
        wheel,
    ]
    subprocess.run(install, env=environment(), check=True, timeout=COMMAND_S)

    def command(*arguments: str) -> list[str]:
        return ["env", f"PYTHONPATH={site}", str(python), "-P", *arguments]

    return command


def run(command: list[str], stdin: str = "") -> str:
    """What it prints."""
    done = subprocess.run(
        command, input=stdin, env=environment(), capture_output=True, text=True, timeout=COMMAND_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def server(penstock: Callable[..., list[str]], tmp_path: Path) -> Iterator[dict[str, str]]:
    """The addresses of one that is served by the wheel, by scheme."""
    flags = ["--data", str(tmp_path / "data"), "--http", "127.0.0.1:0", "--pulsar", "127.0.0.1:0"]
    errors = tmp_path / "errors"
    with errors.open("wb") as stderr:
        process = subprocess.Popen(
            penstock("-m", "penstock", "serve", *flags),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()  # at its end, too
        assert line.startswith(READY), errors.read_text()
        yield {url.partition(":")[0]: url for url in line.removeprefix(READY).split()}
    finally:
        process.terminate()
        process.wait(START_S)
        process.stdout.close()


def test_what_is_in_the_wheel_and_the_sdist(dist: Path) -> None:
    assert problems(dist) == []


def test_the_oldest_set_is_what_is_installed(penstock: Callable[..., list[str]]) -> None:
    script = (
        "import json; from importlib.metadata import distributions;"
        "print(json.dumps({one.name.lower().replace('_', '-'): one.version for one in distributions()}))"
    )
    installed = json.loads(run(penstock("-c", script)))
    locked = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / "oldest.txt").read_text(), re.M))
    assert locked.items() <= installed.items()
    assert installed.keys() - locked.keys() <= {"penstock", "pip", "setuptools"}


def test_the_wheel_serves_on_the_oldest_set(
    penstock: Callable[..., list[str]], server: dict[str, str]
) -> None:
    run(penstock("-m", "penstock", "produce", "wheel", "--url", server["http"]), "by the command\n")
    run(penstock("-c", CLIENT, server["http"]))
    with httpx.Client(base_url=server["http"], trust_env=False) as http:
        body = {"messages": [{"value": "over HTTP"}]}
        http.post("/topics/public/default/wheel", json=body).raise_for_status()

    client = pulsar.Client(server["pulsar"], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        consumer = client.subscribe("wheel", "s", initial_position=pulsar.InitialPosition.Earliest)
        got = [consumer.receive(timeout_millis=30_000).data() for _ in range(3)]
    finally:
        client.close()
    assert got == [b"by the command", b"by the client", b"over HTTP"]

    lines = run(penstock("-m", "penstock", "read", "wheel", "--url", server["http"])).splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [0, 1, 2]
    assert json.loads(lines[0])["value"] == "by the command"
