"""Resident memory of the server after publishing millions of messages: `python -m benchmarks.memory [MILLIONS]`."""

import sys
from pathlib import Path

from . import servers
from .generator import http, post, run
from .rest import CONNECTIONS, PATH, body


def resident_mb(pid: int) -> float:
    """VmRSS of a process in MB (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS")


def main() -> None:
    wanted = float(sys.argv[1]) * 1e6 if len(sys.argv) > 1 else 5e6
    peer = http(post(PATH, body(100)), connections=CONNECTIONS)
    with servers.penstock() as server:
        pid = server.pid
        print(f"{'messages':>10} {'resident MB':>12}")
        print(f"{0:>10} {resident_mb(pid):>12.0f}")
        published = 0
        while published < wanted:
            published += run(server, [peer], 2.0, warm_s=0).count * 100
        print(f"{published:>10} {resident_mb(pid):>12.0f}")


if __name__ == "__main__":
    main()
