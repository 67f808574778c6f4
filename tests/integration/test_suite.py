"""The program behind `make test`: which failures are run once more, and what makes the run fail."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PASSES = "def test_passes():\n    pass\n"
FAILS = "def test_fails():\n    print('printed')\n    assert 0, 'a defect'\n"


def fails_once(*names: str) -> str:
    """Tests that fail when they run first, each with a message, and print another one when they pass."""
    once = "from pathlib import Path\n\ndef once(name):\n    file = Path(__file__).with_name(name)\n"
    once += "    file.touch(exist_ok=False) if not file.exists() else print(f'{name} at last')\n"
    once += "    assert 'last' in file.read_text() or file.write_text('last') == 0, f'{name} too early'\n\n"
    return once + "".join(f"def test_{name}():\n    once('{name}')\n\n" for name in names)


Suite = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    """Runs the program over the given test files of the three lanes."""

    def run(
        *arguments: str, others: str = PASSES, pipeline: str = PASSES, clusters: str = PASSES
    ) -> subprocess.CompletedProcess[str]:
        for folder, content in (
            ("examples/testing", PASSES),
            ("tests/unit", others),
            ("tests/pipeline", pipeline),
            ("tests/clusters", clusters),
        ):
            (tmp_path / folder).mkdir(parents=True)
            (tmp_path / folder / f"test_{folder.replace('/', '_')}.py").write_text(content)
        (tmp_path / "pytest.ini").touch()
        return subprocess.run(
            [sys.executable, ROOT / "scripts/suite.py", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )

    return run


def last_line(done: "subprocess.CompletedProcess[str]") -> str:
    return done.stdout.rstrip().rpartition("\n")[2]


def test_all_pass(suite: Suite) -> None:
    done = suite()
    assert done.returncode == 0, done.stdout
    assert " 4 passed in " in last_line(done)
    assert "FLAKY" not in done.stdout


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


def test_repetition() -> None:
    file = "tests/unit/model/test_names.py"
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", file]
    once, thrice = (
        [
            line
            for line in subprocess.run(
                [*command, *more], cwd=ROOT, capture_output=True, text=True, timeout=120
            ).stdout.splitlines()
            if line.startswith(file)
        ]
        for more in ((), ("--count", "3"))
    )
    assert once
    assert len(thrice) == 3 * len(once)
    assert [line[-5:-1] for line in thrice[:3]] == ["1of3", "2of3", "3of3"]
