"""Tokens: keys of every kind, algorithms that are not theirs, claims, files that change, what is remembered."""

import base64
import hashlib
import hmac
import json
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.auth import keys, tokens
from penstock.protocols.auth.mint import KINDS, new_secret_key, private_signer, secret_signer
from penstock.protocols.auth.mint import new_key_pair as make_key_pair
from penstock.protocols.auth.settings import AuthConfigError
from penstock.protocols.auth.tokens import Tokens
from penstock.protocols.auth.watched import LOOK_MS, WatchedFile

SECRET = b"s" * 64
NOW_S = 1_800_000_000


@cache
def new_key_pair(kind: str, number: int = 0) -> tuple[bytes, bytes]:
    """A pair that is made once: RSA takes its time."""
    return make_key_pair(kind)


class Time:
    def __init__(self) -> None:
        self.ms = NOW_S * 1000

    def __call__(self) -> int:
        return self.ms


def verifier(source: Any, time: Time | None = None, **options: Any) -> Tokens:
    return Tokens([source], time or Time(), **options)


def signed(claims: dict[str, Any], key: bytes = SECRET, algorithm: str = "HS256") -> str:
    return jwt.encode(claims, key, algorithm)


def refusal(verify: Tokens, token: str) -> str:
    with pytest.raises(PenstockError) as refused:
        verify.verify(token)
    assert refused.value.kind is ErrorKind.UNAUTHENTICATED
    if len(token) > 20:
        assert token not in refused.value.message
    return refused.value.message


# -- keys


@pytest.mark.parametrize(("size", "algorithms"), [(32, 1), (48, 2), (63, 2), (64, 3)])
def test_a_secret_is_for_the_hashes_it_is_long_enough_for(size: int, algorithms: int) -> None:
    key = keys.secret_key(b"k" * size).find(None)
    assert key is not None
    assert sorted(key.algorithms) == ["HS256", "HS384", "HS512"][:algorithms]


def test_secrets_that_are_none() -> None:
    with pytest.raises(ValueError, match="31 bytes; at least 32"):
        keys.secret_key(b"k" * 31)
    with pytest.raises(ValueError, match="token_public_key_file"):
        keys.secret_key(new_key_pair("ES256")[1])
    with pytest.raises(ValueError, match="not base64"):
        keys.secret_key(b"data:;base64,!!!")


def test_a_secret_as_base64_is_the_same_key() -> None:
    text = b"data:;base64," + base64.b64encode(SECRET) + b"\n"
    assert verifier(keys.secret_key(text)).verify(signed({"sub": "alice"})).role == "alice"


@pytest.mark.parametrize("kind", KINDS)
def test_key_pairs(kind: str) -> None:
    private, public = new_key_pair(kind)
    verify = verifier(keys.public_key(public))
    signer = private_signer(private)
    assert signer.algorithm == kind
    assert verify.verify(signer.sign({"sub": "alice"})).role == "alice"
    assert "signature" in refusal(verify, private_signer(new_key_pair(kind, 1)[0]).sign({"sub": "alice"}))
    with pytest.raises(ValueError, match="holds no private key"):
        private_signer(public)
    der = load_pem_public_key(public).public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert verifier(keys.public_key(der)).verify(signer.sign({"sub": "alice"})).role == "alice"


def test_public_keys_that_are_none() -> None:
    for content in (
        b"",
        b"hello",
        b"-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----",
        new_key_pair("ES256")[0],
    ):
        with pytest.raises(ValueError, match="no public key"):
            keys.public_key(content)
    small = rsa.generate_private_key(65_537, 1024).public_key()
    with pytest.raises(ValueError, match="1024 bits; at least 2048"):
        keys.public_key(small.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


# -- algorithms


def test_a_public_key_is_no_secret() -> None:
    """The classic: a token signed by HMAC with the text of the server's public key."""
    for kind in ("RS256", "ES256", "EdDSA"):
        _, public = new_key_pair(kind)
        head, claims = (_b64(json.dumps(part).encode()) for part in ({"alg": "HS256"}, {"sub": "root"}))
        signature = _b64(hmac.digest(public, f"{head}.{claims}".encode(), hashlib.sha256))
        assert "algorithm" in refusal(verifier(keys.public_key(public)), f"{head}.{claims}.{signature}")


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "NONE", "", None, 5, ["HS256"], "HS1024", "RS256", "ES256"]
)
def test_algorithms_that_are_not_the_keys(algorithm: object) -> None:
    _, claims, signature = signed({"sub": "root"}).split(".")
    head = _b64(json.dumps({"typ": "JWT", "alg": algorithm}).encode())
    for end in (signature, ""):
        refusal(verifier(keys.secret_key(SECRET)), f"{head}.{claims}.{end}")


def test_a_short_secret_takes_no_long_hash() -> None:
    token = jwt.encode({"sub": "alice"}, b"k" * 64, "HS512")
    assert "algorithm" in refusal(verifier(keys.secret_key(b"k" * 32)), token)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda raw: ".".join([_b64(raw)] * 3)))
def test_garbage_is_refused_and_nothing_else(token: str) -> None:
    refusal(verifier(keys.secret_key(SECRET)), token)


@given(st.integers(0, 10_000), st.integers(0, 63))
def test_any_other_character_breaks_a_token(at: int, other: int) -> None:
    token = signed({"sub": "alice", "iat": NOW_S})
    at %= len(token)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    # The last character of a signature holds bits that mean nothing.
    if token[at] != alphabet[other] and at != len(token) - 1 and token[at] != ".":
        refusal(verifier(keys.secret_key(SECRET)), token[:at] + alphabet[other] + token[at + 1 :])


# -- claims


@pytest.mark.parametrize(
    ("claims", "said"),
    [
        ({"exp": NOW_S - 10}, "expired"),
        ({"nbf": NOW_S + 11}, "not valid yet"),
        ({"iat": NOW_S + 11}, "not valid yet"),
        ({"exp": "tomorrow"}, "no time"),
        ({"exp": True}, "no time"),
        ({"exp": -1}, "no time"),
        ({"exp": 1e300}, "no time"),
        ({"exp": float("inf")}, "no time"),
        ({"nbf": float("nan")}, "no time"),
        ({"sub": ""}, "no claim 'sub'"),
        ({"sub": None}, "no claim 'sub'"),
        ({"sub": 5}, "no claim 'sub'"),
        ({"sub": {"a": 1}}, "no claim 'sub'"),
        ({"sub": "a\nb"}, "no role that could be one"),
        ({"sub": "x" * 257}, "no role that could be one"),
        ({"aud": "somebody"}, "audience"),
        ({"aud": ["somebody", 5]}, "audience"),
        ({"aud": None}, "audience"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], said: str) -> None:
    verify = verifier(keys.secret_key(SECRET), audience="us", leeway_s=10)
    head, _, _ = signed({}).split(".")
    body = _b64(json.dumps({"sub": "alice", "aud": "us", **claims}).encode())
    signature = _b64(hmac.digest(SECRET, f"{head}.{body}".encode(), hashlib.sha256))
    assert said in refusal(verify, f"{head}.{body}.{signature}")


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW_S - 9},
        {"nbf": NOW_S + 10},
        {"iat": NOW_S + 9.5},
        {"aud": ["others", "us"]},
        {"sub": ["alice", "others"]},
    ],
)
def test_claims_that_are_taken(claims: dict[str, Any]) -> None:
    verify = verifier(keys.secret_key(SECRET), audience="us", leeway_s=10)
    head, _, _ = signed({}).split(".")
    body = _b64(json.dumps({"sub": "alice", "aud": "us", **claims}).encode())
    signature = _b64(hmac.digest(SECRET, f"{head}.{body}".encode(), hashlib.sha256))
    assert verify.verify(f"{head}.{body}.{signature}").role == "alice"


def test_the_role_is_in_another_claim() -> None:
    verify = verifier(keys.secret_key(SECRET), role_claim="client_id")
    assert verify.verify(signed({"sub": "1234", "client_id": "alice"})).role == "alice"
    refusal(verify, signed({"sub": "alice"}))


def test_a_token_that_is_too_long() -> None:
    verify = verifier(keys.secret_key(SECRET))
    assert "too long" in refusal(verify, signed({"sub": "alice", "more": "x" * tokens.TOKEN_CHARACTERS_MAX}))


# -- what is remembered


def test_a_known_token_expires_too() -> None:
    time = Time()
    verify = verifier(keys.secret_key(SECRET), time, leeway_s=10)
    token = signed({"sub": "alice", "exp": NOW_S + 60})
    assert verify.verify(token).expires_ms == (NOW_S + 70) * 1000
    time.ms += 69_999
    assert verify.verify(token).role == "alice"
    time.ms += 1
    assert "expired" in refusal(verify, token)
    assert "expired" in refusal(verify, token)


def test_a_known_token_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    verify = verifier(keys.secret_key(SECRET))
    token = signed({"sub": "alice"})
    known = verify.verify(token)
    monkeypatch.setattr(jwt, "decode", None)
    assert verify.verify(token) is known


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "REMEMBERED_MAX", 3)
    verify = verifier(keys.secret_key(SECRET))
    for number in range(10):
        assert verify.verify(signed({"sub": f"role-{number}"})).role == f"role-{number}"
    assert len(verify._known) == 3


# -- sets of keys in a file


def jwk(public: bytes, kid: str | None = None, **more: Any) -> dict[str, Any]:
    loaded = load_pem_public_key(public)
    for algorithm in (jwt.algorithms.RSAAlgorithm, jwt.algorithms.ECAlgorithm, jwt.algorithms.OKPAlgorithm):
        try:
            made = json.loads(algorithm.to_jwk(loaded))  # type: ignore[arg-type]
        except Exception:
            continue
        return {**made, **({"kid": kid} if kid else {}), **more}
    raise AssertionError


def test_keys_are_found_by_their_ids() -> None:
    pairs = {kind: new_key_pair(kind) for kind in KINDS}
    content = json.dumps({"keys": [jwk(public, kind) for kind, (_, public) in pairs.items()]}).encode()
    verify = verifier(keys.jwks(content))
    for kind, (private, _) in pairs.items():
        assert verify.verify(private_signer(private, kind).sign({"sub": kind})).role == kind
        assert "not known here" in refusal(verify, private_signer(private, "other").sign({"sub": "x"}))
        assert "not known here" in refusal(verify, private_signer(private).sign({"sub": "x"}))
    private = pairs["ES256"][0]
    assert "algorithm" in refusal(verify, private_signer(private, "RS256").sign({"sub": "x"}))


def test_one_key_without_an_id_is_for_all() -> None:
    private, public = new_key_pair("EdDSA")
    verify = verifier(keys.jwks(json.dumps({"keys": [jwk(public)]}).encode()))
    assert verify.verify(private_signer(private).sign({"sub": "alice"})).role == "alice"
    assert verify.verify(private_signer(private, "any").sign({"sub": "alice"})).role == "alice"


def test_the_algorithm_of_a_key_in_a_set() -> None:
    private, public = new_key_pair("RS256")
    verify = verifier(keys.jwks(json.dumps({"keys": [jwk(public, "k", alg="PS256")]}).encode()))
    signer = private_signer(private, "k")
    assert verify.verify(signer.sign({"sub": "alice"}, "PS256")).role == "alice"
    assert "algorithm" in refusal(verify, signer.sign({"sub": "alice"}, "RS256"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello", "no set of keys"),
        ("[]", "no set of keys"),
        ('{"keys": []}', "no key that verifies"),
        ('{"keys": [{"kty": "RSA", "use": "enc"}]}', "no key that verifies"),
        ('{"keys": [{"kty": "RSA"}]}', "key 0 cannot be used"),
        ('{"keys": [{"kty": "oct", "k": "c2hvcnQ"}]}', "at least 32"),
        (json.dumps({"keys": [jwk(new_key_pair("ES256")[1], "a")] * 2}), "two keys of the id 'a'"),
        (json.dumps({"keys": [jwk(new_key_pair("ES256")[1], alg="HS256")]}), "not for a key of its kind"),
        (json.dumps({"keys": [jwk(new_key_pair("ES256")[1], d="AA")]}), "private"),
    ],
)
def test_sets_that_cannot_be_used(content: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        keys.jwks(content.encode())


def test_keys_that_are_exchanged(tmp_path: Path) -> None:
    time, file = Time(), tmp_path / "keys.json"
    pairs = {name: new_key_pair("ES256", number) for number, name in enumerate(("old", "new"))}

    def write(*names: str) -> None:
        kept = tmp_path / "next"
        kept.write_text(json.dumps({"keys": [jwk(pairs[name][1], name) for name in names]}))
        kept.replace(file)

    write("old")
    verify = verifier(WatchedFile("auth.token_jwks_file", str(file), keys.jwks, time), time)
    by = {name: private_signer(private, name).sign({"sub": name}) for name, (private, _) in pairs.items()}
    assert verify.verify(by["old"]).role == "old"
    assert "not known here" in refusal(verify, by["new"])
    write("old", "new")
    assert verify.verify(by["new"]).role == "new"  # at once: nobody knew its id before
    write("new")
    time.ms += LOOK_MS
    assert "not known here" in refusal(verify, by["old"])  # also what was remembered
    file.write_text("half of a fi")
    time.ms += LOOK_MS
    assert verify.verify(by["new"]).role == "new"  # what was there before counts
    file.unlink()
    time.ms += LOOK_MS
    assert verify.verify(by["new"]).role == "new"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AuthConfigError, match=r"auth\.token_jwks_file: .*none cannot be read: No such file"):
        WatchedFile("auth.token_jwks_file", str(tmp_path / "none"), keys.jwks, Time())


def test_a_new_secret_is_for_every_hash() -> None:
    signer = secret_signer(made := new_secret_key())
    for algorithm in ("HS256", "HS384", "HS512"):
        assert verifier(keys.secret_key(made)).verify(signer.sign({"sub": "a"}, algorithm)).role == "a"
    with pytest.raises(ValueError, match="RS256 is not for this key"):
        signer.sign({"sub": "a"}, "RS256")


def _b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def test_a_file_that_is_no_good_is_read_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    time, file = Time(), tmp_path / "keys.json"
    reads: list[bytes] = []

    def read(content: bytes) -> keys.Keys:
        reads.append(content)
        return keys.jwks(content)

    file.write_text(json.dumps({"keys": [jwk(new_key_pair("ES256")[1], "a")]}))
    verify = verifier(WatchedFile("auth.token_jwks_file", str(file), read, time), time)
    stranger = private_signer(new_key_pair("ES256")[0], "b").sign({"sub": "b"})  # of no key that is known
    file.write_text("half of a fi")
    for _ in range(5):
        refusal(verify, stranger)
        time.ms += LOOK_MS
    assert len(reads) == 2
    assert len(caplog.records) == 1
    file.unlink()
    for _ in range(5):
        refusal(verify, stranger)
        time.ms += LOOK_MS
    assert len(caplog.records) == 2
    pair = new_key_pair("ES256")
    file.write_text(json.dumps({"keys": [jwk(pair[1], "b")]}))
    assert verify.verify(private_signer(pair[0], "b").sign({"sub": "b"})).role == "b"
