"""`penstock serve --check`: certificates that do not count yet, not any more, or not for long."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from tests.support.commands import runner

from penstock.cli.serve import serve_command
from penstock.server.check import Checked, check
from penstock.server.sources import load

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
LOCAL = {
    "http.listen": "off",
    "http.tls_listen": "127.0.0.1:0",
    "pulsar.listen": "off",
    "data.store": "memory",
}


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


def made(ca: trustme.CA, begins: timedelta, ends: timedelta, name: str = "here") -> trustme.LeafCert:
    """A certificate that counts from then until then, as from now."""
    now = datetime.now(UTC)
    return ca.issue_cert("localhost", common_name=name, not_before=now + begins, not_after=now + ends)


def checked(certificate: trustme.LeafCert, tmp_path: Path, *more: bytes, **settings: str) -> Checked:
    """What is said of a server that shows it, and of `more` behind it in its file."""
    file = tmp_path / "server.pem"
    file.write_bytes(certificate.private_key_and_cert_chain_pem.bytes() + b"".join(more))
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return check(load(flags={**LOCAL, "tls.cert_file": str(file), **named}))


def pem(*certificates: trustme.LeafCert) -> bytes:
    return b"".join(each.cert_chain_pems[0].bytes() for each in certificates)


def about(setting: str, sentences: list[str]) -> list[str]:
    return [sentence for sentence in sentences if sentence.startswith(setting)]


@pytest.mark.parametrize(
    ("begins", "ends", "said"),
    [
        (-30 * DAY, -HOUR, "expired at "),
        (HOUR, 30 * DAY, "is not valid before "),
    ],
)
def test_a_certificate_that_no_client_takes_is_a_problem(
    ca: trustme.CA, tmp_path: Path, begins: timedelta, ends: timedelta, said: str
) -> None:
    found = checked(made(ca, begins, ends), tmp_path)
    (problem,) = found.wrong
    assert problem.startswith("tls.cert_file: the certificate of CN=here,")
    assert f" in {tmp_path}/server.pem {said}" in problem
    assert problem.endswith(" UTC")
    assert found.doubts == about("tls.", found.right) == []


@pytest.mark.parametrize(
    ("begins", "ends", "said"),
    [
        (-80 * DAY, 10 * DAY + HOUR, ", in 10 days"),
        (-80 * DAY, 30 * HOUR + HOUR / 2, ", in 30 hours"),
        (-80 * DAY, 15 * DAY, None),
        (-DAY, 6 * DAY, None),  # a short life ends soon in its last quarter
        (-5 * DAY, DAY + HOUR / 2, ", in 24 hours"),
    ],
)
def test_one_that_ends_soon_is_a_warning(
    ca: trustme.CA, tmp_path: Path, begins: timedelta, ends: timedelta, said: str | None
) -> None:
    found = checked(made(ca, begins, ends), tmp_path)
    assert found.wrong == []
    (right,) = about("tls.", found.right)
    assert right.startswith(f"tls.cert_file: {tmp_path}/server.pem, with its key, valid until 20")
    if said is None:
        assert found.doubts == []
    else:
        (doubt,) = found.doubts
        assert "the certificate of CN=here," in doubt
        assert "expires at " in doubt
        assert doubt.endswith(said)


def test_what_lies_behind_it_is_looked_at_too(ca: trustme.CA, tmp_path: Path) -> None:
    """Clients may find another way to a root that they trust."""
    old = [made(ca, -30 * DAY, -HOUR, name) for name in ("first", "second", "third")]
    found = checked(made(ca, -DAY, 90 * DAY), tmp_path, pem(*old))
    assert found.wrong == []
    (doubt,) = found.doubts
    assert "CN=first," in doubt
    assert doubt.endswith("UTC; so it is with 2 more of the file")


def test_those_who_sign_clients_certificates(ca: trustme.CA, tmp_path: Path) -> None:
    server = made(ca, -DAY, 90 * DAY)
    old, older = made(ca, -30 * DAY, -HOUR, "old"), made(ca, -30 * DAY, -DAY, "older")
    file = tmp_path / "clients.pem"
    asked = {"tls__client_ca_file": str(file), "tls__client_certificates": "required"}

    file.write_bytes(pem(old))
    (problem,) = checked(server, tmp_path, **asked).wrong
    assert problem.startswith("tls.client_ca_file: the certificate of CN=old,")

    file.write_bytes(pem(older, old))
    (problem,) = checked(server, tmp_path, **asked).wrong
    assert problem.startswith("tls.client_ca_file: the certificate of CN=old,")
    assert problem.endswith(", and no other of the file is valid")

    file.write_bytes(pem(older, old, server))
    found = checked(server, tmp_path, **asked)
    assert found.wrong == []
    assert len(about(f"tls.client_ca_file: {file}, valid until ", found.right)) == 1
    (doubt,) = found.doubts
    assert doubt.startswith("tls.client_ca_file: the certificate of CN=older,")

    file.write_bytes(pem(old))  # which nobody is asked for
    found = checked(server, tmp_path, tls__client_ca_file=str(file))
    assert (found.wrong, found.doubts) == ([], [])


def test_certificates_towards_a_cluster(ca: trustme.CA, tmp_path: Path) -> None:
    old = tmp_path / "old.pem"
    old.write_bytes(made(ca, -30 * DAY, -HOUR).private_key_and_cert_chain_pem.bytes())
    engine = {"engine__url": "kafka+ssl://127.0.0.1:9093"}
    files = {"engine__tls_cert_file": str(old), "engine__tls_trust_file": str(old)}
    problems = checked(made(ca, -DAY, 90 * DAY), tmp_path, **engine, **files).wrong
    assert [problem.partition(":")[0] for problem in problems] == [
        "engine.tls_cert_file",
        "engine.tls_trust_file",
    ]


def test_a_key_of_another_kind_does_not_belong_to_it(ca: trustme.CA, tmp_path: Path) -> None:
    key = tmp_path / "rsa.key"
    ca.issue_cert("localhost", key_type=trustme.KeyType.RSA).private_key_pem.write_to_path(str(key))
    (problem,) = checked(made(ca, -DAY, 90 * DAY), tmp_path, tls__key_file=str(key)).wrong
    assert f"the key in {key} does not belong to the certificate in {tmp_path}/server.pem" in problem


@pytest.mark.parametrize(("ends", "code", "count"), [(-HOUR, 1, 0), (DAY, 0, 1), (60 * DAY, 0, 0)])
def test_the_command_says_so(ca: trustme.CA, tmp_path: Path, ends: timedelta, code: int, count: int) -> None:
    file = tmp_path / "server.pem"
    made(ca, -30 * DAY, ends).private_key_and_cert_chain_pem.write_to_path(str(file))
    settings = [f"--set={name}={value}" for name, value in LOCAL.items()]
    result = runner().invoke(
        serve_command, ["--check", *settings, f"--set=tls.cert_file={file}"], standalone_mode=False
    )
    assert result.return_value == code
    said = json.loads(result.stdout)
    assert (said["valid"], len(said["warnings"]), len(said["problems"])) == (code == 0, count, code)
    told = [f"penstock: warning: {each}\n" for each in said["warnings"]]
    assert result.stderr == "".join([*told, *(f"penstock: {each}\n" for each in said["problems"])])
