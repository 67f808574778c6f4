"""Names for clients that bring none."""

import secrets


class NewNames:
    """Makes names that no other client has: `{kind}-{instance}-{number}`."""

    def __init__(self) -> None:
        self.instance = secrets.token_hex(4)
        self._names = 0

    def __call__(self, kind: str) -> str:
        self._names += 1
        return f"{kind}-{self.instance}-{self._names}"
