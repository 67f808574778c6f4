"""Which Java is chosen, among scripts that speak like one."""

import tempfile
from pathlib import Path

import pytest

from penstock.pipeline import session as java
from penstock.pipeline.errors import PipelineError


def make(home: Path, version: str, vector: bool = True) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    refusal = "" if vector else 'case "$*" in *jdk.incubator.vector*) exit 1;; esac\n'
    script.write_text(
        f'#!/bin/sh\n{refusal}echo "$@" >&2\n'
        f'echo "    java.specification.version = {version}\n    java.home = {home}" >&2\n'
    )
    script.chmod(0o700)
    return script


@pytest.fixture(autouse=True)
def nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No Java in the environment and no wheel."""
    monkeypatch.setattr(java, "_wheel", lambda: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    java._find.cache_clear()


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make(tmp_path / "a", "21")
    make(tmp_path / "b", "17")
    monkeypatch.setenv("PATH", str(tmp_path / "b" / "bin"))
    assert java.find_java() == tmp_path / "b"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    assert java.find_java() == tmp_path / "a"


def test_one_that_is_too_old_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make(tmp_path / "a", "1.8")
    make(tmp_path / "b", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("PATH", str(tmp_path / "b" / "bin"))
    assert java.find_java() == tmp_path / "b"


def test_the_wheel_gets_a_shim(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make(tmp_path / "it's", "25", vector=False)
    monkeypatch.setattr(java, "_wheel", lambda: tmp_path / "it's")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = java.find_java()
    assert home.parent == tmp_path
    probed = java.probe(home / "bin" / "java", "-Da=b c", "--add-modules=jdk.incubator.vector", "")
    assert probed == java.Java(25, tmp_path / "it's")


def test_none_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make(tmp_path / "a", "11")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    with pytest.raises(
        PipelineError, match=r"that of JAVA_HOME is version 11.*install Java 17.*penstock\[jre\]"
    ):
        java.find_java()
