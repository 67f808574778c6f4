"""Servers with authentication as they are started: what is refused, other ways in, what the logs hold."""

import json
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import pulsar
import pytest
from tests.support.auth import issuer, upgrade
from tests.support.tls import Pki

from penstock.protocols.auth.passwords import hash_password, write_users
from penstock.protocols.auth.settings import AuthSettings
from penstock.testing.server import launch, running

OFFSETS = "/topics/public/default/t/partitions/0/offsets"
GRANTED = {"public/default": {"alice": ("produce", "consume")}}


def penstock(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# -- starting


@pytest.mark.parametrize(
    "flags",
    [
        ("--http", "0.0.0.0:0", "--pulsar", "off"),
        ("--http", ":0", "--pulsar", "off"),
        ("--http", "[::]:0", "--pulsar", "off"),
        ("--http", "127.0.0.1:0", "--pulsar", "0.0.0.0:0"),
    ],
)
def test_an_open_endpoint_is_refused(flags: tuple[str, ...]) -> None:
    done = penstock("serve", "--memory", *flags)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "is open to other machines and auth.enabled is false: turn it on, or say --insecure" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("flags", [("--insecure",), ("--set", "auth.insecure=true")])
def test_an_open_endpoint_that_is_meant(tmp_path: Path, flags: tuple[str, ...]) -> None:
    with launch(tmp_path, "--set", "http.listen=0.0.0.0:0", *flags) as server:
        assert httpx.get(server.url + "/health/ready", trust_env=False).status_code == 200
        assert "without authentication" in server.log


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.8.9.1:0", "localhost:0", "[::1]:0"])
def test_loopback_needs_nothing(tmp_path: Path, listen: str) -> None:
    try:
        with launch(tmp_path, "--set", f"http.listen={listen}") as server:
            assert server.process.poll() is None
    except RuntimeError as error:  # a machine without IPv6
        if "[::1]" not in listen or "cannot listen" not in str(error):
            raise


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("auth.enabled=true",), "auth.enabled needs a way to come in"),
        (("auth.token_secret_key=short",), "auth.token_secret_key is given and auth.enabled is false"),
        (
            ("auth.enabled=true", "auth.token_secret_key=tell-nobody"),
            "auth.token_secret_key is a secret of 11 bytes",
        ),
        (("auth.enabled=true", "auth.token_jwks_file=/none"), "auth.token_jwks_file: /none cannot be read"),
        (
            (
                "auth.enabled=true",
                "auth.anonymous_role=a",
                'auth.permissions={"public/default":{"a":["fly"]}}',
            ),
            "auth.permissions: 'public/default': unknown action 'fly'",
        ),
    ],
)
def test_settings_that_make_no_sense(settings: tuple[str, ...], said: str) -> None:
    flags = [part for setting in settings for part in ("--set", setting)]
    done = penstock("serve", "--memory", "--http", "127.0.0.1:0", "--pulsar", "off", *flags)
    assert (done.returncode, said in done.stderr) == (1, True), done.stderr
    assert "tell-nobody" not in done.stderr


# -- from the first command to the first message


def test_keys_tokens_and_permissions_by_the_command_line(tmp_path: Path) -> None:
    key = str(tmp_path / "key")
    assert penstock("tokens", "create-secret-key", "-o", key).returncode == 0
    assert Path(key).stat().st_mode & 0o777 == 0o600
    assert penstock("tokens", "create-secret-key", "-o", key).returncode == 1  # it may be in use
    root = penstock("tokens", "create", "--secret-key", key, "-s", "root", "-e", "1h").stdout.strip()
    alice = tmp_path / "alice"
    alice.write_text(penstock("tokens", "create", "--secret-key", key, "-s", "alice").stdout)
    claims = json.loads(penstock("tokens", "validate", "--secret-key", key, stdin=root).stdout)
    assert claims["role"] == "root"
    garbage = penstock("tokens", "validate", "--secret-key", key, "garbage")
    assert (garbage.returncode, garbage.stderr) == (1, "penstock: the token is no JWT\n")
    flags = ("auth.enabled=true", f"auth.token_secret_key_file={key}", "auth.super_users=root,other")
    with launch(tmp_path / "data", *(part for flag in flags for part in ("--set", flag))) as server:
        at = ("--url", server.url)
        none = penstock("topics", "list", *at)
        assert (none.returncode, "credentials are needed" in none.stderr) == (1, True)
        assert penstock("topics", "create", "t", *at, "--token", root).returncode == 0
        by_file = (*at, "--token-file", str(alice))
        assert "may not" in penstock("produce", "t", "hello", *by_file).stderr
        with httpx.Client(headers={"Authorization": f"Bearer {root}"}, trust_env=False) as client:
            grants = f"{server.url}/admin/v2/namespaces/public/default/permissions/alice"
            assert client.post(grants, json=["produce", "consume"]).status_code == 204
        done = penstock("produce", "t", "hello", *by_file)
        assert done.returncode == 0, done.stderr


def test_no_token_in_the_log(tmp_path: Path) -> None:
    given, wrong = issuer.token("alice"), "e30.e30.wrong"
    environment = {"PENSTOCK_AUTH__TOKEN_SECRET_KEY": issuer.key, "PENSTOCK_AUTH__ENABLED": "true"}
    flags = ("--set", "log.level=debug")
    with launch(tmp_path, *flags, environment=environment) as server:
        for shown in (given, wrong):
            for path in (
                "/ws/v2/producer/persistent/public/default/t",
                OFFSETS,
                "/nowhere",
                "/admin/v2/nowhere",
            ):
                with httpx.Client(base_url=server.url, trust_env=False) as client:
                    assert shown not in client.get(path, params={"token": shown}).text
                assert shown not in upgrade(server, f"{path}?token={shown}", {}).text
        server.terminate()
        for text in (given, wrong, issuer.key):
            assert text not in server.log


# -- other ways in


def test_names_and_passwords(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert penstock("users", "add", str(file), "alice", "--password-stdin", stdin="right\n").returncode == 0
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(penstock("users", "list", str(file)).stdout) == {"name": "alice"}
    with running(auth=AuthSettings(enabled=True, basic_file=str(file), permissions=GRANTED)) as server:
        with httpx.Client(base_url=server.url, trust_env=False) as client:
            body = {"messages": [{"value": "x"}]}
            for _ in range(2):
                posted = client.post("/topics/public/default/t", json=body, auth=("alice", "right"))
                assert posted.status_code == 200
            refused = client.get(OFFSETS, auth=("alice", "wrong"))
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == 'Basic realm="penstock", charset="UTF-8"'
            assert client.get(OFFSETS, headers={"Authorization": "Bearer x"}).status_code == 401
        for password, right in (("right", True), ("wrong", False)):
            client_ = pulsar.Client(
                server.pulsar,
                authentication=pulsar.AuthenticationBasic("alice", password),
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
                operation_timeout_seconds=30 if right else 5,
            )
            try:
                if right:
                    client_.create_producer("t").send(b"hello")
                else:
                    with pytest.raises(pulsar.PulsarException):
                        client_.create_producer("t")
            finally:
                client_.close()


def test_the_official_client_hears_what_is_wrong() -> None:
    with running(auth=issuer.settings(permissions=GRANTED)) as server:

        def connect(token: str | None, timeout_s: int) -> pulsar.Client:
            authentication = None if token is None else pulsar.AuthenticationToken(token)
            return pulsar.Client(
                server.pulsar,
                authentication=authentication,
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
                operation_timeout_seconds=timeout_s,
            )

        for token, error in (
            # It takes the ERROR that answers CONNECT, as Pulsar's brokers send it, for a lost connection, and tries
            # again until its time is over.
            (None, pulsar.Timeout),
            ("garbage", pulsar.Timeout),
            (issuer.token("bob"), pulsar.AuthorizationError),
            (issuer.token("alice"), None),
        ):
            client = connect(token, 1 if error is pulsar.Timeout else 30)
            try:
                if error is None:
                    client.create_producer("t").send(b"hello")
                    client.subscribe("t", "s").close()
                else:
                    with pytest.raises(error):
                        client.create_producer("t")
                    with pytest.raises(error):
                        client.subscribe("t", "s")
            finally:
                client.close()


def test_certificates(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    tls = pki.settings(client_certificates="optional", client_ca_file=pki.client_ca_file)
    auth = AuthSettings(enabled=True, certificates=True, permissions=GRANTED)
    with running(tls=tls, plain=False, auth=auth) as server:
        for name, status in (("alice", 404), ("bob", 403), (None, 401)):
            context: ssl.SSLContext = pki.trust(None if name is None else pki.client(name))
            with httpx.Client(base_url=server.https, verify=context, trust_env=False) as client:
                assert client.get(OFFSETS).status_code == status
                assert client.get(OFFSETS, headers={"Authorization": "Bearer x"}).status_code == 401
        cert, key = pki.client("alice")
        client = pulsar.Client(
            server.pulsar_tls,
            authentication=pulsar.AuthenticationTLS(cert, key),
            tls_trust_certs_file_path=pki.ca_file,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
        try:
            client.create_producer("t").send(b"hello")
        finally:
            client.close()


def test_an_anonymous_role() -> None:
    auth = issuer.settings(anonymous_role="guest", permissions={"public/default": {"guest": ("produce",)}})
    with running(auth=auth) as server, httpx.Client(base_url=server.url, trust_env=False) as client:
        body = {"messages": [{"value": "x"}]}
        assert client.post("/topics/public/default/t", json=body).status_code == 200
        assert client.get(OFFSETS).status_code == 403
        assert client.get(OFFSETS, headers={"Authorization": "Bearer x"}).status_code == 401


def test_users_of_a_file() -> None:
    assert write_users({"b": hash_password(b"x"), "a": hash_password(b"y")}).decode().split(":")[0] == "a"
