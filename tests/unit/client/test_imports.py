"""What a program with the client loads: no part of the server, and what docs/client.md says is enough."""

import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[3] / "docs"
SCRIPT = """
import sys
from importlib.metadata import packages_distributions
before = set(sys.modules)
import penstock
penstock.aio
penstock.Client("pulsar://127.0.0.1:1").close()
owners = packages_distributions() | {"google": ["protobuf"]}  # which shares that name with others
print(*{name for module in set(sys.modules) - before for name in owners.get(module.partition(".")[0], ())})
"""


def test_the_client_loads_what_its_page_installs() -> None:
    listed = re.search(r"^pip install (msgspec .*)$", (DOCS / "client.md").read_text("utf-8"), re.M)
    assert listed is not None
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    # `httpx` is for service URLs of HTTP, and loaded with the first of them.
    assert set(done.stdout.split()) - {"penstock", "typing_extensions"} == {*listed[1].split()} - {"httpx"}
