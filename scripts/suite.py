"""Run all tests: python scripts/suite.py [argument of pytest …], from the root of the project.

Three lanes run side by side, each a process of pytest: tests/pipeline (mostly waits for Spark), tests/clusters (mostly waits
for brokers) and all others, whose output is shown as it comes. The first is the shortest, so some test files of
tests/clusters that start their own brokers (OWN_BROKERS) run at its end. If an argument names a path or a test, one process
runs only what the arguments name.

Spark and real brokers on a busy machine make rare failures. After all lanes have ended, each failed test of the first two
runs once more, alone. A test that then passes is flaky: it is listed under FLAKY with the outputs of both runs, and
the run succeeds with at most MOST_FLAKY of them. A lane is not rerun if pytest itself failed or more than MOST_RERUN of its
tests did. The exit code is that of the first lane that failed.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any, NoReturn

MOST_FLAKY = 2  # of all lanes
MOST_RERUN = 10  # failed tests of one lane
END_S = 60  # for a lane that is interrupted
# Files of tests/clusters that use none of the brokers that tests share: they may run in another process.
OWN_BROKERS = ("test_*_faults.py", "test_*_faults_owners.py", "test_*_stopping.py")

PASSED, FAILED, INTERRUPTED, NONE = 0, 1, 130, 5  # NONE: -k or -m leaves no test
INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
PYTEST = (sys.executable, "-m", "pytest")
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
CLOSING = re.compile(r"=+ .* in [\d.]+s\b.* =+")  # pytest's last line
COUNT = re.compile(r"(\d+) (passed|failed|error|skipped|deselected|xfailed|xpassed|warning)s?\b")


@dataclass
class Lane:
    """One process of pytest, its log and the outcomes of its tests."""

    name: str
    tests: Sequence[str]
    title: str
    reruns: bool = True
    code: int = FAILED
    log: str = ""
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    def start(self, folder: Path, arguments: Sequence[str], *, shown: bool = False) -> "Run":
        command = [*PYTEST, *self.tests, "-p", "scripts.outcomes", "--outcomes", str(folder / self.name)]
        if self.reruns:
            command += ["-o", f"cache_dir=.pytest_cache/{self.name}"]  # for --last-failed
        if sys.stdout.isatty():
            command.append("--color=yes")
        return Run(self, [*command, *arguments], folder / self.name, shown)

    @property
    def ended(self) -> bool:
        """Whether pytest came to its end, with or without failed tests."""
        return bool(self.outcomes) and self.outcomes[-1].get("code") == self.code in (PASSED, FAILED, NONE)

    @property
    def red(self) -> bool:
        return self.code not in (PASSED, NONE)

    @property
    def failed(self) -> list[str]:
        """The node ids of tests with a failure or an error."""
        return list(dict.fromkeys(each["test"] for each in self.outcomes if each.get("outcome") == "failed"))

    def reports(self, test: str) -> list[dict[str, Any]]:
        """One for each phase of a test: setup, call, teardown."""
        return [each for each in self.outcomes if each.get("test") == test]

    def passed(self, test: str) -> bool:
        """Whether the body of a test passed, whatever its fixtures did."""
        return any(each.get("when") == "call" and each["outcome"] == "passed" for each in self.reports(test))

    def output(self, test: str) -> str:
        return "".join(each["output"] for each in self.reports(test)).rstrip() or "(no output)"

    @property
    def counts(self) -> Counter[str]:
        """The numbers of pytest's closing line."""
        closing = ESCAPES.sub("", self.summary[-1]) if self.summary else ""
        return Counter({noun: int(count) for count, noun in COUNT.findall(closing)})

    @property
    def summary(self) -> list[str]:
        """The end of the log, from pytest's short summary to its closing line; clients of brokers may log more after it."""
        lines = [line for line in self.log.splitlines() if line.strip()]
        plain = [ESCAPES.sub("", line) for line in lines]
        end = max((i for i, line in enumerate(plain, 1) if CLOSING.fullmatch(line)), default=len(lines))
        start = next((i for i, line in enumerate(plain[:end]) if "short test summary info" in line), end - 20)
        return lines[max(start, 0) : end]


class Run:
    """A lane that runs, in its own process group: an interrupt reaches everything that it started."""

    def __init__(self, lane: Lane, command: Sequence[str], outcomes: Path, shown: bool) -> None:
        self._lane = lane
        self._outcomes = outcomes
        self._shown = shown
        self._log = outcomes.with_suffix(".log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if shown else log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )

    def wait(self) -> None:
        """Return when the lane has ended and holds its log and outcomes."""
        if self._process.stdout is not None:
            self._show(self._process.stdout)
        self._lane.code = self._process.wait()
        self._lane.log = self._log.read_text(encoding="utf-8", errors="replace")
        if self._outcomes.exists():
            for line in self._outcomes.read_text(encoding="utf-8").splitlines(keepends=True):
                if line.endswith("\n"):  # a killed process leaves a part of one
                    self._lane.outcomes.append(json.loads(line))

    def interrupt(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> None:
        """Wait for a lane that was interrupted, and kill it if it does not end."""
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _show(self, stream: IO[bytes]) -> None:
        with self._log.open("wb") as log:
            while part := stream.read1(1 << 16):  # type: ignore[attr-defined]
                log.write(part)
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()


@dataclass(frozen=True)
class Rerun:
    """What the second run of a lane's failed tests gave."""

    first: Lane
    second: Lane

    @property
    def flaky(self) -> list[str]:
        if not self.second.ended:
            return []
        again = self.second.failed
        return [test for test in self.first.failed if test not in again and self.second.passed(test)]

    @property
    def rescued(self) -> bool:
        """Whether no failure is left."""
        return self.flaky == self.first.failed

    def counts(self) -> Counter[str]:
        """Those of the first run, with each flaky test counted as passed."""
        counts = self.first.counts
        for test in self.flaky:
            for each in self.first.reports(test):
                if each["outcome"] == "failed":
                    counts["failed" if each["when"] == "call" else "error"] -= 1
            counts["passed"] += not self.first.passed(test)
            counts["flaky"] += 1
        return +counts


def main(arguments: Sequence[str]) -> int:
    if any(Path(argument.partition("::")[0]).exists() for argument in arguments):
        os.execv(PYTEST[0], [*PYTEST, *arguments])
    begun = time.monotonic()
    lanes = lanes_of(Path())
    folder = Path(tempfile.mkdtemp(prefix="suite"))
    runs: list[Run] = []
    try:
        for lane in lanes:
            runs.append(lane.start(folder, arguments, shown=not lane.reruns))  # noqa: PERF401 - a failed start ends the others
        for run in runs:
            run.wait()
        reruns: dict[str, Rerun] = {}
        for lane in lanes:
            if lane.reruns and lane.red and lane.ended and 0 < len(lane.failed) <= MOST_RERUN:
                second = Lane(lane.name, lane.failed, lane.title)
                runs.append(second.start(folder, arguments))
                runs[-1].wait()
                reruns[lane.name] = Rerun(lane, second)
    finally:
        for run in runs:
            run.interrupt()
        for run in runs:
            run.end()
        shutil.rmtree(folder, ignore_errors=True)
    return report(lanes, reruns, time.monotonic() - begun)


def lanes_of(root: Path) -> list[Lane]:
    """The lanes for the test files below `root`: each file belongs to exactly one."""
    found = {file for pattern in OWN_BROKERS for file in (root / "tests/clusters").glob(pattern)}
    own_brokers = [file.relative_to(root).as_posix() for file in sorted(found)]
    others = ("tests", "examples/testing", "--ignore=tests/pipeline", "--ignore=tests/clusters")
    clusters = ("tests/clusters", *(f"--ignore={file}" for file in own_brokers))
    return [
        Lane("others", others, "All others (their failures are above)", reruns=False),
        Lane(
            "pipeline",
            ("tests/pipeline", *own_brokers),
            "tests/pipeline, and tests/clusters with own brokers",
        ),
        Lane("clusters", clusters, "tests/clusters, the other files"),
    ]


def report(lanes: Sequence[Lane], reruns: dict[str, Rerun], took_s: float) -> int:
    """Print what happened, and return the exit code."""
    total: Counter[str] = Counter()
    codes = [lane.code for lane in lanes]
    for place, lane in enumerate(lanes):
        rerun = reruns.get(lane.name)
        if rerun is not None and rerun.rescued:
            codes[place] = PASSED
            # Without the lines of failures and the closing line, which count failures that are none.
            kept = [
                line
                for line in lane.summary[:-1]
                if not ESCAPES.sub("", line).startswith(("FAILED", "ERROR"))
            ]
            show(lane.title + ":", *kept, closing(rerun.counts()))
        elif lane.reruns or lane.red:
            show(lane.title + ":", *(lane.summary if not lane.red or not lane.reruns else [lane.log]))
            if rerun is not None:
                show(f"{lane.title}, the failed tests once more, alone:", rerun.second.log)
            elif lane.red and lane.reruns:
                why = f"{len(lane.failed)} tests failed" if lane.ended else f"pytest ended with {lane.code}"
                show(f"{lane.title}: {why}, so no test was run once more.")
        total += rerun.counts() if rerun else lane.counts
    flaky = [(rerun, test) for rerun in reruns.values() for test in rerun.flaky]
    if flaky:
        show(heading("FLAKY"), "These tests failed, and passed when they were run once more, alone:")
    for rerun, test in flaky:
        show("", f"FLAKY {test}", heading("first run", "-"), rerun.first.output(test))
        show(heading("second run", "-"), rerun.second.output(test))
    if len(flaky) > MOST_FLAKY:
        show("", f"{len(flaky)} tests are flaky; more than {MOST_FLAKY} fail the run.")
        codes.append(FAILED)
    show("", "All tests:", closing(total, took_s))
    red = [code for code in codes if code not in (PASSED, NONE)]
    if red:
        return red[0] if red[0] > 0 else 128 - red[0]
    return NONE if set(codes) == {NONE} else PASSED


def heading(text: str, line: str = "=") -> str:
    return f" {text} ".center(100, line)


def closing(counts: Counter[str], took_s: float | None = None) -> str:
    """A line as pytest's last."""
    nouns = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error", "flaky")
    plural = {noun: "s" if noun in ("warning", "error") and counts[noun] > 1 else "" for noun in nouns}
    text = (
        ", ".join(f"{counts[noun]} {noun}{plural[noun]}" for noun in nouns if counts[noun]) or "no tests ran"
    )
    return heading(text if took_s is None else f"{text} in {took_s:.2f}s")


def show(*lines: str) -> None:
    print(*lines, sep="\n", flush=True)


def interrupted(_number: int, _frame: FrameType | None) -> NoReturn:
    """End by an exception, once: ending the lanes is not interrupted in turn."""
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    raise SystemExit(INTERRUPTED)


if __name__ == "__main__":
    for number in INTERRUPTS:
        signal.signal(number, interrupted)
    sys.exit(main(sys.argv[1:]))
