"""Tests that declare pipelines are collected without Spark."""

import subprocess
import sys
from pathlib import Path


def test_nothing_of_spark_is_imported_before_a_test_runs(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('name = "p"\n[[tests]]\nname = "one"\ngiven.s = []\n')
    code = (
        "import sys; from penstock.testing.pipelines import pipeline_tests, run_pipeline;"
        f"print(*pipeline_tests({str(file)!r}));"
        "print([name for name in ('pyspark', 'pyarrow', 'pandas', 'deltalake') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split("\n") == ["one", "[]", ""]
