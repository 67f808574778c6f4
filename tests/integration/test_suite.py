"""The program behind `make test`: which failures are run once more, and what makes the run fail."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from scripts.suite import OWN_BROKERS, lanes_of
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    print('printed')\n    assert 0, 'a defect'\n"


def fails_once(*names: str) -> str:
    """Tests that fail when they run first, each with a message, and print another one when they pass."""
    once = "from pathlib import Path\n\ndef once(name):\n    file = Path(__file__).with_name(name)\n"
    once += "    file.touch(exist_ok=False) if not file.exists() else print(f'{name} at last')\n"
    once += "    assert 'last' in file.read_text() or file.write_text('last') == 0, f'{name} too early'\n\n"
    return once + "".join(f"def test_{name}():\n    once('{name}')\n\n" for name in names)


Done = subprocess.CompletedProcess[str]
Suite = Callable[..., Done]
COMMAND = [sys.executable, ROOT / "scripts/suite.py"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def write(folder: Path, others: str, pipeline: str, clusters: str) -> None:
    """A project with a test file for each lane."""
    for name, content in (
        ("examples/testing", PASSES),
        ("tests/unit", others),
        ("tests/pipeline", pipeline),
        ("tests/clusters", clusters),
    ):
        (folder / name).mkdir(parents=True)
        (folder / name / f"test_{name.replace('/', '_')}.py").write_text(content)
    (folder / "pytest.ini").touch()


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Runs the program over the given test files."""

    def run(
        *arguments: str,
        others: str = PASSES,
        pipeline: str = PASSES,
        clusters: str = PASSES,
        files: Mapping[str, str] = {},
    ) -> Done:
        """`files`: further test files by their paths."""
        write(tmp_path, others, pipeline, clusters)
        for name, content in files.items():
            (tmp_path / name).write_text(content)
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )

    return run


def last_line(done: Done) -> str:
    return done.stdout.rstrip().rpartition("\n")[2]


def test_all_pass(suite: Suite) -> None:
    done = suite()
    assert done.returncode == 0, done.stdout
    assert " 4 passed in " in last_line(done)
    assert "FLAKY" not in done.stdout


def test_each_test_file_runs_once(suite: Suite, tmp_path: Path) -> None:
    said = "import os\nfrom pathlib import Path\n\ndef test_here():\n"
    said += "    Path(__file__).with_suffix(f'.{os.getpid()}').touch(exist_ok=False)\n"
    names = [pattern.replace("*", "kafka") for pattern in OWN_BROKERS] + ["test_kafka_admin.py"]
    done = suite(
        others=said, pipeline=said, clusters=said, files={f"tests/clusters/{name}": said for name in names}
    )
    assert done.returncode == 0, done.stdout
    assert f" {4 + len(names)} passed in " in last_line(done)
    ran = {file.stem: file.suffix for file in tmp_path.glob("tests/*/test_*.[0-9]*")}
    assert len(ran) == 3 + len(names)
    assert len(set(ran.values())) == 3, "a process for each lane"
    own_brokers = {ran[Path(name).stem] for name in names[:-1]}
    assert own_brokers == {ran["test_tests_pipeline"]}
    assert ran["test_kafka_admin"] == ran["test_tests_clusters"]


def test_a_flaky_test_with_its_own_broker_is_run_once_more(suite: Suite) -> None:
    done = suite(files={"tests/clusters/test_kafka_faults.py": fails_once("one")})
    assert done.returncode == 0, done.stdout
    assert "FLAKY tests/clusters/test_kafka_faults.py::test_one" in done.stdout
    assert " 5 passed, 1 flaky in " in last_line(done)


def test_files_with_their_own_brokers_use_no_shared_one() -> None:
    [_, pipeline, _] = lanes_of(ROOT)
    files = [ROOT / name for name in pipeline.tests[1:]]
    assert len(files) >= len(OWN_BROKERS)
    shared = re.compile(r"\b(pulsar_cluster|pulsar_namespace|secure_cluster|kafka_cluster|registry_url)\b")
    assert not [file.name for file in files if shared.search(file.read_text())]


def test_two_flaky_tests_are_listed_with_both_outputs(suite: Suite) -> None:
    done = suite(pipeline=PASSES + fails_once("one"), clusters=fails_once("two"))
    assert done.returncode == 0, done.stdout
    listed = done.stdout.partition(" FLAKY ")[2]
    for name, test in (
        ("one", "tests/pipeline/test_tests_pipeline.py::test_one"),
        ("two", "tests/clusters/test_tests_clusters.py::test_two"),
    ):
        first, _, second = listed.partition(f"FLAKY {test}\n")[2].partition(" second run ")
        assert f"AssertionError: {name} too early" in first
        assert f"{name} at last" in second.partition("FLAKY tests")[0]
    assert " 5 passed, 2 flaky in " in last_line(done)
    assert " failed" not in done.stdout.partition(" FLAKY ")[0], "no closing line counts what passed at last"


def test_a_third_flaky_test_fails_the_run(suite: Suite) -> None:
    done = suite(pipeline=fails_once("one", "two"), clusters=fails_once("three"))
    assert done.returncode == 1
    assert "3 tests are flaky" in done.stdout
    assert all(f"::test_{name}\n" in done.stdout.partition(" FLAKY ")[2] for name in ("one", "two", "three"))


def test_what_fails_twice_fails_the_run(suite: Suite) -> None:
    done = suite(clusters=FAILS + fails_once("one"))
    assert done.returncode == 1
    assert "a defect" in done.stdout
    assert "FLAKY tests/clusters/test_tests_clusters.py::test_one" in done.stdout
    assert "test_fails" not in done.stdout.partition(" FLAKY ")[2]
    assert " 1 failed, 4 passed, 1 flaky in " in last_line(done)


def test_an_error_of_a_fixture_is_run_once_more(suite: Suite) -> None:
    fixture = "import pytest\n@pytest.fixture\ndef given():\n    yield\n    once('late')\n\ndef test_it(given):\n    pass\n"
    done = suite(clusters=fails_once() + fixture)
    assert done.returncode == 0, done.stdout
    assert "FLAKY tests/clusters/test_tests_clusters.py::test_it" in done.stdout
    assert " 4 passed, 1 flaky in " in last_line(done)


def test_what_is_logged_after_the_closing_line_is_not_counted(suite: Suite) -> None:
    late = "import atexit, os\natexit.register(os.write, 1, b'rdkafka: 127.0.0.1:24541 failed\\n')\n"
    done = suite(clusters=late + PASSES + fails_once("one"))
    assert done.returncode == 0, done.stdout
    assert " 5 passed, 1 flaky in " in last_line(done)


def test_other_tests_are_not_run_once_more(suite: Suite) -> None:
    done = suite(others=fails_once("one"))
    assert done.returncode == 1
    assert "FLAKY" not in done.stdout
    assert " 1 failed, 3 passed in " in last_line(done)


@pytest.mark.parametrize(
    ("clusters", "code"),
    [
        pytest.param(fails_once(*(f"n{number}" for number in range(11))), 1, id="too many"),
        pytest.param(fails_once("one") + "import nothing_of_this_name\n", 2, id="not collected"),
        pytest.param(fails_once("one") + "def test_die():\n    import os\n    os._exit(1)\n", 1, id="died"),
        pytest.param(
            fails_once("one") + "def test_die():\n    import os\n    os.kill(os.getpid(), 9)\n",
            137,
            id="killed",
        ),
    ],
)
def test_a_broken_lane_is_not_run_once_more(suite: Suite, clusters: str, code: int) -> None:
    done = suite(clusters=clusters)
    assert done.returncode == code
    assert "no test was run once more" in done.stdout
    assert "FLAKY" not in done.stdout


def test_arguments_choose(suite: Suite) -> None:
    clusters = PASSES + fails_once("one")
    assert suite("tests/clusters", clusters=clusters).returncode == 1, "one process, nothing is run once more"


def test_no_test_chosen(suite: Suite) -> None:
    assert suite("-k", "nothing").returncode == 5


def test_an_interrupt_ends_every_lane(tmp_path: Path) -> None:
    waits = """
import os, time
from pathlib import Path

def test_waits():
    Path(f"{os.getpid()}.running").touch()
    time.sleep(600)
"""
    write(tmp_path, waits, waits, waits)

    def running() -> list[int]:
        return [int(path.stem) for path in tmp_path.glob("*.running")]

    with subprocess.Popen(COMMAND, cwd=tmp_path, env=ENVIRONMENT, stdout=subprocess.DEVNULL) as process:
        until(lambda: len(running()) == 3)
        for _ in range(2):  # `timeout` and shells signal a process and its group
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    for pid in running():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_each_repetition_of_a_module_has_its_own_fixtures(tmp_path: Path) -> None:
    tests = """
import pytest

@pytest.fixture(scope="session")
def used():
    return []

@pytest.fixture(scope="module")
def names(used):
    used.append("made")
    return set()

@pytest.mark.parametrize("name", ["a", "b"])
def test_takes(names, used, name):
    assert name not in names, "taken"
    names.add(name)
    used.append(name)

def test_last(used):
    assert used == ["made", "a", "b"] * (len(used) // 3)
"""
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    (tmp_path / "test_names.py").write_text(tests)
    command = [sys.executable, "-m", "pytest", "-q", "--count", "3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert "9 passed" in done.stdout, done.stdout
