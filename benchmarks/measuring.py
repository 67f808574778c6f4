"""Runs of a floor and of Penstock in turns, and one line for each case.

Servers are up for all rounds of a case, and each round runs them one after the other for a short time: the machine is
then in the same state for both, and the ratio is that of a pair. A line shows medians; a ratio also its least and most.
`by CPU` is the ratio of what a message costs the processor: where others use the machine it says more than the rates.
"""

import argparse
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from .generator import Result, is_slow

FULL: Final = 0.9  # of a processor: whoever uses more of it has no room left
COLUMNS: Final = (
    ("", 72),
    ("echo floor/s", 12),
    ("Penstock/s", 10),
    ("ratio (least to most)", 21),
    ("by CPU", 6),
    ("of own stack's", 14),
    ("CPU µs: floor, own stack, Penstock", 34),
    ("p99 ms", 7),
    ("generator", 9),
)


class Options(NamedTuple):
    """What a benchmark was told on its command line."""

    seconds: float
    rounds: int
    folder: Path | None

    @property
    def warm_s(self) -> float:
        return min(0.5, self.seconds / 3)


def options(text: str) -> Options:
    """Read the command line; `text` describes the benchmark."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one run (default: 2)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each server (default: 5)")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 0.7 s: a first look, not a figure")
    parser.add_argument("--folder", type=Path, help="where data goes (default: the temporary folder)")
    given = parser.parse_args()
    if given.quick:
        return Options(0.7, 3, given.folder)
    return Options(given.seconds, given.rounds, given.folder)


class Runs(NamedTuple):
    """One case: a run of the echo floor, one of an echo by Penstock's own server stack, and one of Penstock."""

    name: str
    floor: Callable[[], Result]
    stack: Callable[[], Result]
    penstock: Callable[[], Result]


def head() -> None:
    """The machine, and the columns."""
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    generator = "Python, which limits" if is_slow() else "Go"
    print(
        f"{os.cpu_count()} processors, load {load}; Python {platform.python_version()}; "
        f"load generator: {generator}"
    )
    row(*(name for name, _ in COLUMNS))
    print(f"|{'|'.join('-' * (width + 2) for _, width in COLUMNS)}|", flush=True)


def row(*cells: str) -> None:
    print(f"| {' | '.join(f'{cell:<{width}}' for cell, (_, width) in zip(cells, COLUMNS, strict=True))} |")


def compare(case: Runs, rounds: int) -> None:
    """Run a case, and print its line, and below it what makes its figures doubtful."""
    floors, stacks, ours = [], [], []
    for _ in range(rounds):
        floors.append(case.floor())
        stacks.append(case.stack())
        ours.append(case.penstock())
    ratios = ratios_of(ours, floors)
    row(
        case.name,
        f"{median(floors, 'per_second'):,.0f}",
        f"{median(ours, 'per_second'):,.0f}",
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        f"{statistics.median(cpu_ratios_of(ours, floors)):.2f}",
        f"{statistics.median(ratios_of(ours, stacks)):.2f}",
        ", ".join(f"{median(each, 'server_us'):.1f}" for each in (floors, stacks, ours)),
        f"{median(ours, 'p99_ms'):.1f}" if ours[0].p99_ms else "",
        f"{median(ours, 'generator_share'):.0%}",
    )
    for name, results in (("echo floor", floors), ("own stack", stacks), ("Penstock", ours)):
        note(name, results)


def note(name: str, results: Sequence[Result]) -> None:
    """Say so where it was not the server that limited a figure."""
    generator, server = median(results, "generator_share"), median(results, "server_share")
    if generator >= FULL:
        print(f"    {name}: the load generator limits this figure, with {generator:.0%} of a processor")
    elif 0 < server < FULL:
        print(
            f"    {name}: the server had {server:.0%} of a processor, the load generator {generator:.0%}: it waited, "
            "or others used the machine"
        )


def ratios_of(ours: Sequence[Result], floors: Sequence[Result]) -> list[float]:
    """Of the rates of each pair."""
    return [our.per_second / floor.per_second for our, floor in zip(ours, floors, strict=True)]


def cpu_ratios_of(ours: Sequence[Result], floors: Sequence[Result]) -> list[float]:
    """What an answer costs the floor's processor, of what it costs ours: the ratio of rates where others use the
    machine. 0 where it cannot be measured."""
    pairs = zip(ours, floors, strict=True)
    return [floor.server_us / our.server_us if our.server_us else 0.0 for our, floor in pairs]


def median(results: Sequence[Result], name: str) -> float:
    return float(statistics.median(getattr(each, name) for each in results))
