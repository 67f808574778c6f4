"""What is wrong with a produced frame, by Pulsar's number for it (`send-error:N`)."""

from typing import Final

BAD_JSON: Final = 3
BAD_PAYLOAD: Final = 7
UNKNOWN: Final = 8


class BadFrame(Exception):
    """A frame that cannot be published; the text is for its sender."""

    def __init__(self, result: int, text: str) -> None:
        super().__init__(text)
        self.result = result
