"""The supervisor is a process that waits: it loads neither Spark nor Arrow, nor a server. Nor does its worker, before Java
starts."""

import subprocess
import sys


def test_the_command_loads_no_spark() -> None:
    code = (
        "import sys, penstock.cli.pipeline, penstock.pipeline.run.supervise, penstock.pipeline.run.worker;"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'deltalake', 'penstock.server.app') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
