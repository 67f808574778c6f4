"""Modules are taken out of garbage collection in Spark's workers, and nowhere else."""

import gc
import sys
from types import ModuleType, SimpleNamespace

import pytest

from penstock.pipeline import garbage


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(garbage, "_done", set())
    return calls


def _main(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    module = ModuleType("__main__")
    module.__spec__ = None if name is None else SimpleNamespace(name=name)  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "__main__", module)


def test_once_for_each_kind_of_work(monkeypatch: pytest.MonkeyPatch, frozen: list[str]) -> None:
    _main(monkeypatch, "pyspark.daemon")
    garbage.freeze_modules("read")
    garbage.freeze_modules("read")
    assert len(frozen) == 1
    garbage.freeze_modules("write")
    assert len(frozen) == 2


@pytest.mark.parametrize("name", [None, "pytest"])
def test_not_in_other_processes(name: str | None, monkeypatch: pytest.MonkeyPatch, frozen: list[str]) -> None:
    _main(monkeypatch, name)
    garbage.freeze_modules("read")
    assert frozen == []
