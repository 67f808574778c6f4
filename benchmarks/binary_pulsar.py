"""Batched produce over Pulsar's binary protocol, beside a real Pulsar: `pulsar-perf produce` against both in turns.

    PULSAR_HOME=… python -m benchmarks.binary_pulsar [--seconds 10] [--rounds 5] [--rate R] [--outstanding N]

PULSAR_HOME is the folder of an unpacked distribution of Apache Pulsar; its own Java producer makes batches of messages
of 100 bytes. Pulsar runs standalone on loopback with its data in a fresh folder and `journalSyncData=true`: both sides
answer once a message is on disk. Delays are those of single messages from `send` to the receipt, of which most are the
time in the producer's queue where the rate is not bounded.
"""

import argparse
import os
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from . import servers

START_S: Final = 120.0
BROKER_MEMORY: Final = "-Xms256m -Xmx768m -XX:MaxDirectMemorySize=768m"
PERF_MEMORY: Final = "-Xmx512m -XX:MaxDirectMemorySize=512m"
THROUGHPUT: Final = re.compile(r"Aggregated throughput stats.*?([\d.,]+)\s+msg/s")
LATENCY: Final = re.compile(r"Aggregated latency stats.*?med:\s*([\d.,]+).*?99pct:\s*([\d.,]+)")


class Measured(NamedTuple):
    """Of one run of the producer; CPU in µs of the server for each message."""

    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_us: float


@contextmanager
def pulsar(home: Path, folder: Path, more: Mapping[str, str] | None = None) -> Iterator[tuple[str, int]]:
    """A standalone Pulsar, with `more` settings; yields its service URL and process id."""
    service, web, bookkeeper = (servers.free_port() for _ in range(3))
    settings = {
        "brokerServicePort": service,
        "webServicePort": web,
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "journalSyncData": "true",
        **(more or {}),
    }
    text = (home / "conf" / "standalone.conf").read_text()
    for key, value in settings.items():
        text, found = re.subn(rf"(?m)^{key}=.*$", f"{key}={value}", text)
        text += "" if found else f"\n{key}={value}\n"
    config = folder / "standalone.conf"
    config.write_text(text)
    environment = {
        "PULSAR_STANDALONE_CONF": str(config),
        "PULSAR_LOG_DIR": str(folder),
        "PULSAR_LOG_ROOT_LEVEL": "warn",
        "PULSAR_MEM": BROKER_MEMORY,
    }
    command = [str(home / "bin" / "pulsar"), "standalone", "-nfw", "-nss", "--wipe-data"]
    command += ["--metadata-dir", str(folder / "metadata"), "--bookkeeper-dir", str(folder / "bookkeeper")]
    command += ["--bookkeeper-port", str(bookkeeper)]
    with (
        (folder / "standalone.out").open("w") as output,
        subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=os.environ | environment
        ) as process,
    ):
        try:
            wait_for(f"http://127.0.0.1:{web}/admin/v2/brokers/health", process)
            yield f"pulsar://127.0.0.1:{service}", process.pid
        finally:
            process.kill()


def wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Until Pulsar says that it is well."""
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(url, timeout=10).text.strip() == "ok":
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise RuntimeError("Pulsar did not start; standalone.out in its folder says why")


def produce(home: Path, server: tuple[str, int], topic: str, given: argparse.Namespace) -> Measured:
    """One run of `pulsar-perf produce`."""
    url, pid = server
    command = [str(home / "bin" / "pulsar-perf"), "produce", "-u", url, "-s", "100", "-bm", "1000"]
    command += ["-r", str(given.rate), "-o", str(given.outstanding), "-time", str(int(given.seconds)), topic]
    environment = os.environ | {"PULSAR_MEM": PERF_MEMORY}
    before = servers.process_cpu_s(pid)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    used = servers.process_cpu_s(pid) - before
    rate, delays = THROUGHPUT.search(done.stdout), LATENCY.search(done.stdout)
    if rate is None or delays is None:
        raise RuntimeError(f"pulsar-perf failed: {(done.stdout + done.stderr)[-2000:]}")
    per_second, p50, p99 = (
        float(each.replace(",", "")) for each in (rate.group(1), delays.group(1), delays.group(2))
    )
    sent = re.search(r"Aggregated throughput stats --- (\d+) records sent", done.stdout)
    messages = int(sent.group(1)) if sent else per_second * given.seconds
    return Measured(per_second, p50, p99, used / messages * 1e6)


def show(name: str, results: list[Measured]) -> None:
    per_second, p50, p99, cpu = (statistics.median(each) for each in zip(*results, strict=True))
    print(f"| {name:<8} | {per_second:>11,.0f} | {p50:>7.1f} | {p99:>7.1f} | {cpu:>6.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rate", type=int, default=10_000_000, help="messages a second (default: no bound)")
    parser.add_argument("--outstanding", type=int, default=10_000, help="messages in the producer's queue")
    parser.add_argument("--folder", type=Path, help="where data goes (default: the temporary folder)")
    given = parser.parse_args()
    home = Path(os.environ.get("PULSAR_HOME", ""))
    if not (home / "bin" / "pulsar-perf").is_file():
        print("skipped: PULSAR_HOME names no unpacked distribution of Apache Pulsar to compare with")
        return
    found: dict[str, list[Measured]] = {"Pulsar": [], "Penstock": []}
    with (
        tempfile.TemporaryDirectory(prefix="pulsar-bench-", dir=given.folder) as folder,
        pulsar(home, Path(folder)) as theirs,
        servers.penstock_binary(folder=given.folder) as ours,
    ):
        for number in range(given.rounds + 1):
            for results, server in zip(found.values(), (theirs, ours), strict=True):
                result = produce(home, server, f"persistent://public/default/bench-{number}", given)
                if number > 0:  # the first warms the servers
                    results.append(result)
    print("| server   | messages/s  | p50 ms  | p99 ms  | CPU µs |")
    print("|----------|-------------|---------|---------|--------|")
    for name, results in found.items():
        show(name, results)
    pairs = zip(found["Penstock"], found["Pulsar"], strict=True)
    ratios = [our.per_second / their.per_second for our, their in pairs]
    print(f"Penstock of Pulsar: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
