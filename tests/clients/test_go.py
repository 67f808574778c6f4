"""The data path of the official Go client. What is expected is what it finds with a Pulsar 4.0.8, unless said."""

from typing import Any, Final

import pytest
from tests.clients.users import User

STEPS: Final[dict[str, Any]] = {
    "message": ["m0"],
    "asyncBatches": True,
    "compressed": {"LZ4": "text", "ZLIB": "text", "ZSTD": "text"},
    "chunked": 12 << 20,
    "exclusive": True,
    "shared": [20, True, True],
    "keyShared": "babbbaaabbbaaaabbaab",
    "failover": True,
    "negative": 1,
    "deadLetter": ["m0"],
    # Pulsar without acknowledgmentAtBatchIndexLevelEnabled sends the whole batch again.
    "batchIndex": [1, 3, 5],
    "cumulative": ["m3", "m4"],
    "seek": ["m4"],
    "readers": [5, 2, 3],
    "pattern": 2,
    "delayed": ["now", "later"],
    "avro": 1545,
    "json": 1545,
    "bytesSchema": "bytes",
    # Pulsar refuses the schema of bytes to a table view of a topic that has messages.
    "tableView": [2, True],
    "transaction": True,
    # franz-go's client of the schema registry
    "registry": [True, 1, False, 409, 2, True, "x", [1, 2], 40401],
}


@pytest.mark.parametrize("step", STEPS)
def test_steps(go: User, step: str) -> None:
    assert go.run(step) == STEPS[step]
