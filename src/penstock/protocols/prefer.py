"""What a client would like (RFC 7240): `Prefer: wait=10`."""

import re
from typing import Final

_WAIT: Final = re.compile(r'wait\s*=\s*"?([0-9]{1,9})"?')


def wait_seconds(prefer: str | None) -> int | None:
    """For how long a client would wait, None when it does not say so understandably."""
    for preference in (prefer or "").split(","):
        match = _WAIT.fullmatch(preference.split(";")[0].strip().lower())
        if match is not None:
            return int(match.group(1))
    return None
