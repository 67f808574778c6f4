"""A SIGHUP while a command is imported: it ends no server, and any other command as usual."""

import signal
import subprocess
import sys

import pytest

# Sends SIGHUP to the process itself when it begins to import a command's module, before anything of it is run.
_HUNG_UP = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests ignore it, as under nohup
from penstock.cli import main

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGHUP)
        return None

sys.meta_path.insert(0, Finder())
main(sys.argv[2:])
"""


@pytest.mark.parametrize(("command", "code"), [("serve", 0), ("topics", -signal.SIGHUP)])
def test_a_hangup_while_a_command_is_imported(command: str, code: int) -> None:
    call = [sys.executable, "-c", _HUNG_UP, f"penstock.cli.{command}", command, "--help"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code, done.stderr
