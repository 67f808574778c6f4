"""Where tables lie: paths and URLs, options of a store, and what is said of them."""

import pickle
from pathlib import Path

import pytest

from penstock.model.errors import ErrorKind
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake.options import read_options, write_options
from penstock.pipeline.lake.store import Location, StoreError, sentence

SECRET = "0b1b7a-secret"


def test_a_path_is_a_folder_and_a_url_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.of("t").url == str(tmp_path / "t")
    assert Location.of("file:///a%20b/t").url == "/a b/t"
    assert Location.of(" /t ").store() is None
    for url in ("s3://b/t", "s3a://b/a/t", "gs://b/t", "az://c/t", "abfss://c@account.dfs.example/t"):
        assert Location.of(f"{url}/").url == url
        assert Location.of(url).name == "t"
        assert Location.of(url).remote


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "path is missing"),
        ("foo://b/t", "no store that is known"),
        ("s3://b", "names no folder"),
        ("s3:///t", "names no folder"),
        (f"s3://key:{SECRET}@b/t", "credentials are options"),
        (f"az://c/t?sig={SECRET}", "credentials are options"),
    ],
)
def test_what_is_no_place_for_a_table(path: str, reason: str) -> None:
    with pytest.raises(PipelineError, match=reason) as refused:
        Location.of(path)
    assert SECRET not in str(refused.value)


def test_options_of_the_store_are_told_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {
        "path": "s3://b/t",
        "storage.AWS_Region": "here",
        "storage.aws_secret_access_key": "env:MY_SECRET",
    }
    monkeypatch.setenv("MY_SECRET", SECRET)
    for options in (read_options(given), write_options(given)):
        assert options.path.store() == {"aws_region": "here", "aws_secret_access_key": SECRET}
        assert SECRET not in repr(options)
    plain = Location.of("s3://b/t", {"aws_secret_access_key": SECRET})
    assert SECRET not in f"{plain} {plain!r}"
    assert pickle.loads(pickle.dumps(plain)).store() == plain.store()
    monkeypatch.delenv("MY_SECRET")
    with pytest.raises(PipelineError, match=r"storage\.aws_secret_access_key: .* MY_SECRET is not set"):
        read_options(given).path.store()


def test_what_a_store_says_is_one_line() -> None:
    said = OSError(
        "Generic S3 error\n          \x1b[31m↳\x1b[0m Error performing GET http://h/b/t?X-Sig="
        + SECRET
        + " in 2ms\n"
        '           \x1b[31m↳\x1b[0m 503 Busy\n<?xml version="1.0"?><Error/>'
    )
    assert sentence(said) == "Generic S3 error: Error performing GET http://h/b/t in 2ms: 503 Busy"
    with (
        pytest.raises(StoreError, match=r"^the table s3://b/t: the store cannot be used: Gen") as raised,
        Location.of("s3://b/t").reached(),
    ):
        raise said
    assert raised.value.kind is ErrorKind.UNAVAILABLE
    with pytest.raises(StoreError) as raised, Location.of("s3://b/t").reached():
        raise OSError("The operation lacked the necessary privileges\n 403 Forbidden")
    assert raised.value.kind is ErrorKind.FORBIDDEN
    with pytest.raises(OSError, match="full"), Location.of("/t").reached():
        raise OSError("full")
