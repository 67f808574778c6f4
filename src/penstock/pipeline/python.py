"""The Python that Spark runs on this machine: this process's interpreter, without PySpark's archives on its path.

Java puts `pyspark.zip` before the installed package. It holds the same modules but no compiled ones, so that each Python
process of Spark would compile them again: 0.6 s of CPU, one process after the other.
"""

import shlex
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from .shims import shim


@cache
def spark_python() -> str:
    """The value for PYSPARK_PYTHON: a script, or the interpreter itself if no script runs in the temporary folder."""
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
