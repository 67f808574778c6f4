"""Hadoop's connector of S3, which `scripts/s3a.sh fetch` downloads, for Spark's class path."""

from pathlib import Path
from typing import Final

import pytest

_BUILD: Final = Path(__file__).parents[1] / "clusters" / "build" / "s3a"
HOME: Final = _BUILD / "home"
CLASS_PATH: Final = f"{HOME}/*"


def need_s3a() -> None:
    """Skip the test if the connector is not there."""
    if not HOME.exists():
        missing = _BUILD / "missing"
        pytest.skip(missing.read_text().strip() if missing.exists() else "scripts/s3a.sh fetch has not run")
