"""Runs the server of an unpacked image as its configuration says, and looks whether it is what it should be.

python3 container_run.py ROOT IMAGE.json, in mount, network and process namespaces of its own (`unshare`), as root. The
root is read-only, /tmp and the volume are not. Part of scripts/container-check.sh.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

START_S = 120
URL = "http://127.0.0.1:8080"


class Image:
    """An unpacked image, mounted, and how its configuration has commands run."""

    def __init__(self, root: str, config: Mapping[str, Any]) -> None:
        self.root, self.config = root, config
        (volume,) = config["Volumes"]
        run("ip", "link", "set", "lo", "up")
        run("mount", "--make-rprivate", "/")
        run("mount", "--bind", root, root)
        run("mount", "-t", "proc", "proc", f"{root}/proc")
        run("mount", "--rbind", "/dev", f"{root}/dev")
        run("mount", "-t", "tmpfs", "tmpfs", f"{root}/tmp")
        # As an engine does with a new volume: it gets the owner and the mode that the folder has in the image.
        owner = Path(f"{root}{volume}").stat()
        data = tempfile.mkdtemp()
        run("chown", f"{owner.st_uid}:{owner.st_gid}", data)
        run("chmod", f"{owner.st_mode & 0o7777:o}", data)
        run("mount", "--bind", data, f"{root}{volume}")
        run("mount", "-o", "remount,bind,ro", root)

    def command(self, arguments: Sequence[str], variables: Mapping[str, str]) -> list[str]:
        """What runs a command as the image's user, with the image's environment."""
        environment = [*self.config["Env"], *(f"{name}={value}" for name, value in variables.items())]
        user = ["chroot", f"--userspec={self.config['User']}", "--groups=", self.root]
        return [*user, "/usr/bin/env", "-i", "-C", self.config["WorkingDir"], *environment, *arguments]

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        command = self.command(arguments, variables)
        return subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)

    def serve(self, **variables: str) -> subprocess.Popen[bytes]:
        """Start what the image starts, and wait until it is healthy."""
        process = subprocess.Popen(self.command([*self.config["Entrypoint"], *self.config["Cmd"]], variables))
        kind, *health = self.config["Healthcheck"]["Test"]
        assert kind == "CMD", kind
        until = time.monotonic() + START_S
        while self.run(*health).returncode != 0:
            assert process.poll() is None, f"the server ended with {process.returncode}"
            assert time.monotonic() < until, "the server is not healthy"
            time.sleep(0.5)
        return process


def run(*command: str) -> str:
    """The output of a command that may not fail."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def stop(process: subprocess.Popen[bytes], image: Image) -> None:
    """End the server by the image's signal, and expect that it drains."""
    assert image.config["StopSignal"] == "SIGTERM"
    process.terminate()
    assert process.wait(60) == 0, process.returncode


def main(root: str, described: str) -> None:
    """Everything, one look after the other; `described` is the file that `buildah inspect` wrote."""
    image = Image(root, json.loads(Path(described).read_text())["Docker"]["config"])
    meant = {"PENSTOCK_AUTH__INSECURE": "true"}

    open_to_all = image.run(*image.config["Entrypoint"], *image.config["Cmd"])
    assert open_to_all.returncode == 1, open_to_all
    assert "auth.enabled is false" in open_to_all.stderr, open_to_all
    print("ok: without authentication it does not start")

    assert image.run("sh", "-c", "id -u; id -G").stdout.split() == ["10001", "10001"]
    assert image.run("sh", "-c", "touch /etc/penstock/x || touch /opt/penstock/x").returncode != 0
    assert image.run("touch", "/var/lib/penstock/x").returncode == 0
    assert image.run("sh", "-c", "command -v pip gcc").returncode != 0
    checked = image.run(*image.config["Entrypoint"], *image.config["Cmd"], "--check", **meant)
    assert checked.returncode == 0, checked
    print("ok: user, read-only root, volume, --check")

    process = image.serve(**meant)
    topic = f"{URL}/topics/public/default/t"
    sent = json.dumps({"messages": [{"value": "kept"}]})
    run("curl", "-sSf", "-d", sent, "-H", "content-type: application/json", topic)
    assert "pulsar_in_messages_total" in run("curl", "-sSf", f"{URL}/metrics")
    stop(process, image)
    process = image.serve(**meant)
    assert '"value":"kept"' in run("curl", "-sSf", f"{topic}/partitions/0/messages")
    stop(process, image)
    print("ok: healthy, a message outlives a restart, SIGTERM drains")

    kafka = image.run("python", "-c", "import confluent_kafka, opentelemetry.sdk")
    assert kafka.returncode == 0, kafka
    print("ok: the extras are there")


if __name__ == "__main__":
    main(*sys.argv[1:])
