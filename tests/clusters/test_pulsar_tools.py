"""Pulsar's own tools through a server before a real broker, over TLS: they see what they see at the broker itself."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from tests.clients.users import user
from tests.support.pulsar_broker import HOME, PulsarCluster
from tests.support.pulsar_secure import SecureCluster

from penstock.broker.settings import ClusterSettings
from penstock.server.config import TlsSettings
from penstock.testing.server import running

SHELL_S: Final = 400

# Each is a line of `pulsar-shell`, which runs pulsar-admin and pulsar-client in one JVM.
COMMANDS: Final = """\
admin tenants create TENANT -r app -c standalone
admin tenants get TENANT
admin namespaces create TENANT/n -b 1
admin namespaces grant-permission TENANT/n --role app --actions produce
admin namespaces set-retention TENANT/n -t 10m -s 5M
admin namespaces policies TENANT/n
admin topics create persistent://TENANT/n/t
admin topics create persistent://TENANT/n/t
admin topics create-partitioned-topic persistent://TENANT/n/p -p 2
admin topics get-partitioned-topic-metadata persistent://TENANT/n/p
admin topics create-subscription persistent://TENANT/n/t -s s -m earliest
admin topics subscriptions persistent://TENANT/n/t
client produce persistent://TENANT/n/t -m one,two,three -k key -p a=b --disable-batching
admin topics peek-messages persistent://TENANT/n/t -s s -n 3
admin topics stats persistent://TENANT/n/t
admin topics skip persistent://TENANT/n/t -s s -n 2
admin topics reset-cursor persistent://TENANT/n/t -s s -m earliest
admin topics unload persistent://TENANT/n/t
client consume persistent://TENANT/n/t -s s -n 3
admin topics compact persistent://TENANT/n/t
admin topics compaction-status -w persistent://TENANT/n/t
admin schemas upload persistent://TENANT/n/t -f SCHEMA
admin schemas get persistent://TENANT/n/t
admin topics terminate persistent://TENANT/n/t
admin topics unsubscribe persistent://TENANT/n/t -s s
admin topics delete persistent://TENANT/n/t
admin topics delete persistent://TENANT/n/t
admin topics delete-partitioned-topic persistent://TENANT/n/p
admin topics list TENANT/n
admin namespaces delete TENANT/n
admin tenants delete TENANT
"""
# Logs, and what is done already: repeated after each command.
_LOGGED: Final = re.compile(
    r"\d{4}-\d\d-\d\dT|[A-Z][a-z]{2} \d+, \d{4} |INFO: |WARNING: |\[\d+/\d+\] [^E]|Using directory"
)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")
SCHEMA: Final = '{"type": "JSON", "schema": "{\\"type\\":\\"record\\",\\"name\\":\\"R\\",\\"fields\\":[]}", "properties": {}}'


@contextmanager
def shell(cluster: SecureCluster, folder: Path, service: str, web: str) -> Iterator[Path]:
    """`pulsar-shell` runs the commands at these addresses; once the block is left, it is done. Its output is in `folder`."""
    folder.mkdir()
    (folder / "schema").write_text(SCHEMA)
    tenant = f"t{uuid4().hex[:8]}"
    (folder / "tenant").write_text(tenant)
    text = COMMANDS.replace("TENANT", tenant).replace("SCHEMA", str(folder / "schema"))
    (folder / "commands").write_text(text)
    (folder / "client.conf").write_text(
        f"webServiceUrl={web}\nbrokerServiceUrl={service}\ntlsTrustCertsFilePath={cluster.ca_file}\n"
        "authPlugin=org.apache.pulsar.client.impl.auth.AuthenticationToken\n"
        f"authParams=token:{cluster.plain.token}\n"
    )
    environment = {
        **os.environ,
        "PULSAR_MEM": "-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "PULSAR_CLIENT_CONF": str(folder / "client.conf"),
        "PULSAR_EXTRA_OPTS": f"-Duser.home={folder}",
    }
    command = [str(HOME / "home" / "bin" / "pulsar-shell"), "-c", str(folder / "client.conf")]
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [*command, "-f", str(folder / "commands"), "-np"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            yield folder
            assert process.wait(SHELL_S) == 0, (folder / "output").read_text()
        finally:
            process.kill()
            process.wait()


def shown(folder: Path) -> list[str]:
    """What a run shows, without what differs from one to the next: names and numbers."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", (folder / "output").read_text(errors="replace"))
    text = text.replace((folder / "tenant").read_text(), "TENANT").replace(str(folder), "FOLDER")
    lines = [line for line in text.splitlines() if line.strip() and not _LOGGED.match(line)]
    return [_NUMBER.sub("0", line) for line in lines]


@pytest.mark.timeout(600)
def test_pulsar_admin_and_pulsar_client(secure_cluster: SecureCluster, tmp_path: Path) -> None:
    plain = secure_cluster.plain
    cert, key = secure_cluster.certificate("127.0.0.1", secure_cluster.servers)
    with running(engine=secure_cluster.engine(), tls=TlsSettings(cert_file=cert, key_file=key)) as server:
        with (
            shell(secure_cluster, tmp_path / "through", server.pulsar_tls, server.https) as through,
            shell(secure_cluster, tmp_path / "direct", plain.tls_url, plain.admin_tls_url) as direct,
        ):
            pass
        assert shown(through) == shown(direct)


def test_the_go_client_finds_the_broker(pulsar_cluster: PulsarCluster, tmp_path: Path) -> None:
    engine = ClusterSettings(url=pulsar_cluster.service_url, admin_url=pulsar_cluster.admin_url)
    with running(engine=engine) as server, user("go", server, tmp_path) as go:
        assert go.run("message") == ["m0"]
