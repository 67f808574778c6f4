"""What every test may rely on."""

import os

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from hypothesis import HealthCheck, settings

# httpx gives up after 5 seconds where a test says nothing; a busy machine may take longer. It has no public way to
# change what it does by default.
for part in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, part, 60.0)

# Spark's Java machines live for seconds here: to start fast is worth more than to run fast.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# `fast` tries the same examples every time, so that a change is judged by what it changes; `deep` looks further.
settings.register_profile(
    "fast",
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
