"""Figures to be shown: families of samples, before any library has them. Pure values."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from penstock.runtime.statistics import Histogram

Kind = Literal["counter", "gauge", "histogram"]


class Family(msgspec.Struct):
    """A metric: its name, its meaning, its labels' names, and a value for each set of labels.

    A counter's name comes without `_total`. A histogram's values are Histograms, in seconds unless named else.
    """

    kind: Kind
    name: str
    help: str
    labels: tuple[str, ...] = ()
    values: list[tuple[Sequence[str], "float | Histogram"]] = []

    def add(self, labels: Sequence[str], value: "float | Histogram") -> None:
        self.values.append((labels, value))


class Families:
    """The families of one scrape, each made when it is first named."""

    def __init__(self) -> None:
        self._by_name: dict[str, Family] = {}

    def family(self, kind: Kind, name: str, help: str, labels: tuple[str, ...] = ()) -> Family:
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = Family(kind, name, help, labels)
        return found

    def counter(self, name: str, help: str, value: float, **labels: str) -> None:
        self.family("counter", name, help, tuple(labels)).add(tuple(labels.values()), value)

    def gauge(self, name: str, help: str, value: float, **labels: str) -> None:
        self.family("gauge", name, help, tuple(labels)).add(tuple(labels.values()), value)

    def histogram(self, name: str, help: str, value: Histogram, **labels: str) -> None:
        self.family("histogram", name, help, tuple(labels)).add(tuple(labels.values()), value)

    def all(self) -> list[Family]:
        return list(self._by_name.values())


CLUSTER: Final = "standalone"  # Pulsar's label on everything
