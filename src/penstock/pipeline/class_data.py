"""An archive of Spark's classes, as the JVM has them in memory: later starts map it in place of reading jars.

A run of seconds loads 20,000 classes: found in jars, parsed, verified, a quarter of its CPU, most of it in one thread
that all others wait for. `penstock pipeline prepare-java` lets a JVM write what it loaded (class-data sharing), and
`session` uses the file where it is there. A JVM that is of another build, or has other jars, refuses the file by itself
and runs without it. With a file that is cut off it crashes: so the file's name has its size. From Java 25 on the archive is an AOT cache (JEP 483, 514, 515): it also has what the JVM learned of
methods. Before, it stands on the archive of the JDK's own classes, which not every Java has.

Imports no Spark.
"""

import hashlib
import os
import stat
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
    """The archive of one Java and one Spark: `stem` is the path of its file, but for its size and suffix."""

    java: Java
    stem: Path

    @property
    def _aot(self) -> bool:
        return self.java.version >= AOT_VERSION

    def file_of(self, size: int) -> Path:
        """Where an archive of so many bytes is kept."""
        return self.stem.with_name(f"{self.stem.name}-{size}.classes")

    @property
    def file(self) -> Path | None:
        """The archive; None where there is none that is whole, and out of reach of other users: it is code."""
        if not is_safe(self.stem.parent):
            return None
        found = self.stem.parent.glob(f"{self.stem.name}-*.classes")
        return next((file for file in found if self._fits(file)), None)

    def _fits(self, file: Path) -> bool:
        try:
            about = file.stat()
        except OSError:
            return False
        return stat.S_ISREG(about.st_mode) and is_safe(file) and file == self.file_of(about.st_size)

    def using(self) -> list[str]:
        """JVM options of a start with it; none where there is no file."""
        file = self.file
        if file is None or os.pathsep in str(file):  # which Java takes for several files
            return []
        return self.reading(file)

    def reading(self, file: Path) -> list[str]:
        """JVM options of a start with the archive in `file`."""
        option = "-XX:AOTCache=" if self._aot else "-XX:SharedArchiveFile="
        return [f"{option}{file}", self._quiet]

    @property
    def strict(self) -> str:
        """The JVM option with which Java does not start where it refuses the archive."""
        return "-XX:AOTMode=on" if self._aot else "-Xshare:on"

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
        """Other archives of the same Java and Spark: damaged, or as these were before an upgrade."""
        place, _ = self.stem.name.split("-", 1)
        kept = self.file
        return [file for file in self.stem.parent.glob(f"{place}-*.classes") if file != kept]


def class_data(java: Java) -> ClassData:
    """The archive of this Java and the installed Spark, in the user's folder for caches."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    place = _digest(str(java.home), str(pyspark.origin))
    build = _digest(java.build, version("pyspark"))
    return ClassData(java, folder() / f"{place}-{build}")


def folder() -> Path:
    """Where archives are: `$XDG_CACHE_HOME/penstock/java`, or in `~/.cache`."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    cache = Path(given) if given and Path(given).is_absolute() else Path("~/.cache").expanduser()
    return cache / "penstock" / "java"


def is_safe(path: Path) -> bool:
    """Whether only this user, or root, who may have built the image, can write there."""
    try:
        about = path.stat()
    except OSError:
        return False
    return about.st_uid in (0, os.getuid()) and not about.st_mode & 0o022


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]
