"""The data path of the Rust crate `pulsar`, expected as found with a Pulsar 4.0.8 unless said, and a client of the registry."""

from typing import Any, Final

import pytest
from tests.clients.users import User

# Seek is not among them: in this version of the crate it hangs, with Pulsar always and with Penstock now and then.
STEPS: Final[dict[str, Any]] = {
    "message": ["m0"],
    "batches": True,
    "exclusive": True,
    "shared": 20,
    "negative": "m0",
    "dead_letter": ["m0"],
    "cumulative": ["m2", "m3"],
    "reader": ["m0", "m1", "m2"],
    "properties": ["k", "1"],
    # the crate `schema_registry_converter`
    "registry": [0, {"drink": "tea"}, True, True, True, [1]],
}


@pytest.mark.parametrize("step", STEPS)
def test_steps(rust: User, step: str) -> None:
    assert rust.run(step) == STEPS[step]
