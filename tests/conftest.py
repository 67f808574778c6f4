"""What every test may rely on."""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "fast", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "deep", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
