"""The programs in Java and Go that pages print work as printed, against Penstock itself."""

import subprocess
from pathlib import Path

import pytest
from tests.clients.users import STEP_S
from tests.support.pages import Block
from tests.support.programs import command_of, programs_of

from penstock.testing.server import Address

PROGRAMS = programs_of(__file__)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", PROGRAMS, ids=[f"{block.page}-{block.language}" for block in PROGRAMS])
def test_a_program_prints_what_its_page_says(block: Block, clients_server: Address, tmp_path: Path) -> None:
    command = command_of(block, tmp_path, {"pulsar://127.0.0.1:6650": clients_server.pulsar})
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STEP_S * 2, check=False
    )
    assert done.returncode == 0, f"{block.name}: {done.stderr[-4000:]}"
    assert block.prints
    assert all(text in done.stdout for text in block.prints), done.stdout
