"""An archive of Spark's classes, as the JVM has them in memory: later starts map it in place of reading jars.

A run of seconds loads 20,000 classes: found in jars, parsed, verified, a quarter of its CPU, most of it in one thread
that all others wait for. `penstock pipeline prepare-java` lets a JVM write what it loaded (class-data sharing), and
`session` uses the file where it is there. A JVM that is of another build, or has other jars, refuses the file by itself
and runs without it. From Java 25 on the archive is an AOT cache (JEP 483, 514, 515): it also has what the JVM learned of
methods. Before, it stands on the archive of the JDK's own classes, which not every Java has.

Imports no Spark.
"""

import hashlib
import os
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from .errors import PipelineError
from .java import Java

AOT_VERSION: Final = 25
_BASES: Final = ("lib/server/classes.jsa", "bin/server/classes.jsa")


@dataclass(frozen=True)
class ClassData:
    """The archive of one Java and one Spark: `file`, which need not be there."""

    java: Java
    file: Path

    @property
    def _aot(self) -> bool:
        return self.java.version >= AOT_VERSION

    def using(self) -> list[str]:
        """JVM options of a start with it; none where there is no file."""
        if not self.file.is_file() or os.pathsep in str(self.file):  # which Java takes for several files
            return []
        option = "-XX:AOTCache=" if self._aot else "-XX:SharedArchiveFile="
        return [f"{option}{self.file}", self._quiet]

    def writing(self, file: Path) -> list[str]:
        """JVM options of a run that writes the archive to `file` as it ends, for tens of seconds. Raises PipelineError."""
        if not self._aot and not any((self.java.home / base).is_file() for base in _BASES):
            raise PipelineError(
                f"the Java in {self.java.home} has no archive of its own classes to build upon: it takes Java"
                f" {AOT_VERSION} or later, or a whole JDK"
            )
        option = "-XX:AOTCacheOutput=" if self._aot else "-XX:ArchiveClassesAtExit="
        return [f"{option}{file}", self._quiet]

    @property
    def _quiet(self) -> str:
        """Whatever does not fit is left out, and no reason to speak."""
        return "-Xlog:cds*=off,aot*=off" if self._aot else "-Xlog:cds*=off"

    def older(self) -> list[Path]:
        """Archives of the same Java and Spark as they were before an upgrade."""
        place, _ = self.file.name.split("-", 1)
        return [file for file in self.file.parent.glob(f"{place}-*") if file != self.file]


def class_data(java: Java) -> ClassData:
    """The archive of this Java and the installed Spark, in the user's folder for caches."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    place = _digest(str(java.home), str(pyspark.origin))
    build = _digest(java.build, version("pyspark"))
    return ClassData(java, folder() / f"{place}-{build}.classes")


def folder() -> Path:
    """Where archives are: `$XDG_CACHE_HOME/penstock/java`, or in `~/.cache`."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(given) if given and Path(given).is_absolute() else Path("~/.cache").expanduser()
    return cache / "penstock" / "java"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
