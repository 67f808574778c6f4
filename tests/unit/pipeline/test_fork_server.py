"""Spark's Python processes are forked from one that has imported what they need, and are as if they were not."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.pipeline.python import fork_script

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no fork server")

WAIT_S = 120

MODULE = """
import os, sys, time
if sys.argv[1] == "tell":
    print("told", ascii(os.environ["TOLD"]).strip("'"), os.getcwd(), sys.stdin.readline().strip(), "pyarrow" in sys.modules, os.getppid())
    print("and said", file=sys.stderr)
    sys.exit(7)
if sys.argv[1] == "random":
    import random, numpy
    print(random.random(), numpy.random.random())
if sys.argv[1] == "wait":
    print("waits", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fork_script(tmp_path_factory.mktemp("script"))


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Java's, with a module that is not where the server looks."""
    (tmp_path / "asked_module.py").write_text(MODULE)
    return os.environ | {"PYTHONPATH": str(tmp_path), "TOLD": "this"}


def run(
    script: str, environment: dict[str, str], *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    command = [script, *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False, **more
    )  # type: ignore[call-overload,no-any-return]


def test_a_child_is_the_process_that_was_asked_for(
    script: str, environment: dict[str, str], tmp_path: Path
) -> None:
    done = run(script, environment, "-m", "asked_module", "tell", input="a line\n", cwd=str(tmp_path))
    *told, parent = done.stdout.split()
    assert told == ["told", "this", str(tmp_path), "a", "line", "True"]
    assert int(parent) not in (os.getpid(), 1)
    assert done.stderr == "and said\n"
    assert done.returncode == 7


def test_children_draw_random_numbers_of_their_own(script: str, environment: dict[str, str]) -> None:
    drawn = [run(script, environment, "-m", "asked_module", "random").stdout.split() for _ in range(2)]
    assert all(len(numbers) == 2 for numbers in drawn)
    assert not set(drawn[0]) & set(drawn[1])


def test_what_ends_the_client_ends_the_child(script: str, environment: dict[str, str]) -> None:
    command = [script, "-m", "asked_module", "wait"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "waits\n"
        client.send_signal(signal.SIGTERM)
        assert client.stdout.read() == ""  # the child, which alone can write there, is gone
        assert client.wait(WAIT_S) == 128 + signal.SIGTERM


def test_a_client_that_is_killed_takes_its_child_with_it(script: str, environment: dict[str, str]) -> None:
    command = [script, "-m", "asked_module", "wait"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "waits\n"
        client.kill()
        assert client.stdout.read() == ""  # the child, which alone can write there, is gone
    done = run(script, environment, "-m", "asked_module", "random")  # and the server goes on
    assert done.returncode == 0, done.stderr


def test_variables_need_not_be_utf_8(script: str, environment: dict[str, str], tmp_path: Path) -> None:
    given = environment | {"TOLD": os.fsdecode(b"\xff")}
    done = run(
        script, given, "-m", "asked_module", "tell", input="a line\n", cwd=str(tmp_path), errors="replace"
    )
    assert done.stdout.split()[5] == "True"  # by a child of the server


def test_anything_else_is_the_interpreter_itself(script: str, environment: dict[str, str]) -> None:
    done = run(script, environment, "-c", "import sys; print(sys.executable, 'pyarrow' in sys.modules)")
    assert done.stdout.split() == [sys.executable, "False"]


def test_without_a_server_the_client_becomes_the_interpreter(
    script: str, environment: dict[str, str], tmp_path: Path
) -> None:
    alone = tmp_path / "alone"
    text = Path(script).read_text()
    (name,) = (word for word in text.split() if word.startswith("penstock-"))
    alone.write_text(text.replace(name, "penstock-nobody"))
    alone.chmod(0o700)
    done = run(str(alone), environment, "-m", "asked_module", "tell", input="a line\n", cwd=str(tmp_path))
    assert done.stdout.split()[5] == "False"
    assert done.returncode == 7


def test_spark_s_archives_are_taken_off_the_path(script: str, environment: dict[str, str]) -> None:
    import pyspark

    archive = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    path = f"{archive}{os.pathsep}{environment['PYTHONPATH']}"
    done = run(script, environment | {"PYTHONPATH": path}, "-c", "import pyspark; print(pyspark.__file__)")
    assert done.stdout.strip() == pyspark.__file__
