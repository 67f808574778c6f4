"""docs/troubleshooting.md has every error that a server gives, and none that it does not."""

import re

from tests.support.pages import DOCS, ROOT
from websockets.frames import CloseCode

from penstock.model.errors import WS_CLOSE_BASE, WS_RESULT_TEXT, ErrorKind
from penstock.protocols.websocket import socket

PAGE = (DOCS / "troubleshooting.md").read_text()


def test_every_error_code_is_told_with_its_status() -> None:
    told = {(int(code), int(status)) for code, status in re.findall(r"^\| (\d{5}) \| (\d{3}) \|", PAGE, re.M)}
    assert told == {(kind.codes.code, kind.codes.status) for kind in ErrorKind}


def test_every_result_of_a_websocket_is_told_with_its_text() -> None:
    told = re.findall(r"^\| (\d) \| (\d{4}) \| (.*?) \|", PAGE, re.M)
    assert {(int(n), int(code), text) for n, code, text in told} == {
        (n, WS_CLOSE_BASE + n, text) for n, text in WS_RESULT_TEXT.items()
    }


def test_every_close_code_is_told() -> None:
    told = {int(code) for code in re.findall(r"^\| (1\d{3}) \|", PAGE, re.M)}
    sources = [
        *(ROOT / "src/penstock/wire/websocket").glob("*.py"),
        *(ROOT / "src/penstock/server").glob("*.py"),
    ]
    names = {name for file in sources for name in re.findall(r"CloseCode\.([A-Z_]+)", file.read_text())}
    sent = {int(CloseCode[name]) for name in names} | {
        socket.GOING_AWAY,
        socket.TOO_BIG,
        socket.INTERNAL_ERROR,
    }
    assert told == sent - {CloseCode.NORMAL_CLOSURE, CloseCode.NO_STATUS_RCVD}
