"""Standard streams that are full, closed or of another encoding: a sentence, and never a traceback."""

import os
import subprocess
import sys

import pytest

PENSTOCK = f"{sys.executable} -m penstock"


@pytest.mark.parametrize(
    ("command", "code", "stdout", "stderr"),
    [
        (
            "context show >/dev/full",
            1,
            "",
            "penstock: the output cannot be written: No space left on device\n",
        ),
        ("context show -o table >/dev/full", 1, "", "penstock: [Errno 28] No space left on device\n"),
        ("context show >&-", 0, "", ""),
        ("context show <&-", 0, '{"url":"http://127.0.0.1:8080"}\n', ""),
        ("context show 2>&-", 0, '{"url":"http://127.0.0.1:8080"}\n', ""),
        ("context show --url http://\u00e9\U0001f600", 0, '{"url":"http://\\u00e9\\ud83d\\ude00"}\n', ""),
        (
            "api GET /x --url http://127.0.0.1:abc",
            1,
            "",
            "penstock: 'http://127.0.0.1:abc' is no address like http://127.0.0.1:8080\n",
        ),
        ("context set p --url http://one --token $'\\xff'", 1, "", "penstock: what was given is no text: "),
    ],
)
def test_streams(tmp_path: object, command: str, code: int, stdout: str, stderr: str) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment = {
        **kept,
        "PYTHONIOENCODING": "ascii",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    done = subprocess.run(
        ["bash", "-c", f"{PENSTOCK} {command}"], capture_output=True, text=True, env=environment, timeout=60
    )
    assert (done.returncode, done.stdout) == (code, stdout), done.stderr
    assert done.stderr.startswith(stderr)
    assert done.stderr.count("\n") == code
