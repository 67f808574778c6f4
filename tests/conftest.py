"""What every test may rely on."""

import os

import pytest
from hypothesis import HealthCheck, settings

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
