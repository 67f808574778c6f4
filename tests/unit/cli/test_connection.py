"""Which server a command asks: options before and after the subcommand, the environment, contexts; and misspelt words."""

import json
import stat
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from penstock.cli.main import main

URL, OTHER = "http://one:1", "http://two:2"


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of settings that is ours, and nothing in the environment."""
    for name in ("URL", "CONTEXT", "TOKEN", "TOKEN_FILE", "TLS_CA_FILE", "TLS_CERT_FILE", "TLS_KEY_FILE"):
        monkeypatch.delenv(f"PENSTOCK_{name}", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("click.get_app_dir", lambda name: str(tmp_path / name))
    return tmp_path / "penstock"


class Result(NamedTuple):
    stdout: str
    stderr: str


def run(*arguments: str, code: int = 0, text: str = "") -> Result:
    said, wrong = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patched, redirect_stdout(said), redirect_stderr(wrong):
        patched.setattr("sys.stdin", StringIO(text))
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
    assert end.value.code == code, wrong.getvalue()
    return Result(said.getvalue(), wrong.getvalue())


def asked(*arguments: str) -> dict[str, Any]:
    """The server that `context show` says would be asked."""
    found: dict[str, Any] = json.loads(run(*arguments).stdout)
    return found


def test_options_before_and_after_the_subcommand() -> None:
    assert asked("context", "show") == {"url": "http://127.0.0.1:8080"}
    for place in (0, 1, 2):
        words = ["context", "show"]
        words[place:place] = ["--url", URL, "--token-file=t"]
        assert asked(*words) == {"url": URL, "token_file": "t"}
    assert asked("--url", URL, "context", "--url", OTHER, "show")["url"] == OTHER
    assert asked("--url", URL, "context", "show", "--url", OTHER)["url"] == OTHER
    assert run("--output", "template={url}", "--url", URL, "context", "show").stdout == f"{URL}\n"
    assert run("-o", "json", "context", "show", "-otable").stdout.split() == ["url", "http://127.0.0.1:8080"]


def test_an_option_that_the_subcommand_does_not_have() -> None:
    assert "penstock context list has no option --url" in run("--url", URL, "context", "list", code=2).stderr
    done = run("-o", "json", "tokens", "create", "-s", "me", code=2)  # its -o is a file
    assert "penstock tokens create has no option --output" in done.stderr


def test_the_environment_and_contexts(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("context", "set", "prod", "--url", URL, "--token-file", "/p")
    run("context", "set", "test", "--url", OTHER)
    assert asked("context", "show") == {"url": URL, "token_file": "/p"}  # the first is in use
    assert asked("context", "show", "--context", "test") == {"url": OTHER}
    assert asked("--token-file", "/x", "context", "show") == {"url": URL, "token_file": "/x"}
    assert asked("context", "show", "--url", OTHER) == {"url": OTHER}, "the token is for its own server"
    assert asked("context", "show", "--url", OTHER, "--context", "prod") == {"url": OTHER, "token_file": "/p"}
    monkeypatch.setenv("PENSTOCK_TOKEN", "secret")
    assert asked("context", "show") == {"url": URL, "token_env": "PENSTOCK_TOKEN"}
    assert asked("context", "show", "--context", "test") == {"url": OTHER}
    monkeypatch.delenv("PENSTOCK_TOKEN")
    run("context", "use", "test")
    assert asked("context", "show") == {"url": OTHER}
    monkeypatch.setenv("PENSTOCK_CONTEXT", "prod")
    assert asked("context", "show")["url"] == URL
    assert asked("context", "show", "--url", OTHER) == {"url": OTHER}
    monkeypatch.setenv("PENSTOCK_URL", "http://three:3")
    assert "which server is meant" in run("context", "show", code=2).stderr
    monkeypatch.delenv("PENSTOCK_CONTEXT")
    assert asked("context", "show") == {"url": "http://three:3"}
    assert asked("context", "show", "--context", "prod") == {"url": URL, "token_file": "/p"}


def test_a_token_is_kept_in_a_file_of_its_own(own_folder: Path) -> None:
    run("context", "set", "prod", "--url", URL, "--token", "-", text="secret\n")
    token, contexts = own_folder / "prod.token", own_folder / "contexts.json"
    assert token.read_text() == "secret\n"
    assert "secret" not in contexts.read_text()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (own_folder, token, contexts)] == [
        0o700,
        0o600,
        0o600,
    ]
    assert asked("context", "show")["token_file"] == str(token)
    run("context", "set", "prod", "--token-file", "/elsewhere")
    assert not token.exists()
    run("context", "set", "prod", "--token", "again")
    run("context", "delete", "prod", "--yes")
    assert not token.exists()
    assert asked("context", "show") == {"url": "http://127.0.0.1:8080"}


def test_a_token_of_the_environment_is_for_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "secret")
    assert asked("context", "show", "--url", OTHER) == {"url": OTHER, "token_env": "PENSTOCK_TOKEN"}
    monkeypatch.setenv("PENSTOCK_URL", URL)
    assert asked("context", "show") == {"url": URL, "token_env": "PENSTOCK_TOKEN"}
    assert asked("context", "show", "--url", f"{URL}/") == {"url": URL, "token_env": "PENSTOCK_TOKEN"}
    assert asked("context", "show", "--url", OTHER) == {"url": OTHER}


def test_a_context_with_another_address_keeps_no_token(own_folder: Path) -> None:
    run("context", "set", "prod", "--url", URL, "--token", "secret", "--tls-ca-file", "/ca.pem")
    assert "left out" not in run("context", "set", "prod", "--url", f"{URL}/").stderr
    assert asked("context", "show", "prod")["token_file"] == str(own_folder / "prod.token")
    done = run("context", "set", "prod", "--url", OTHER, "--tls-ca-file", "/other.pem")
    assert "left out, as given for another address: token_file\n" in done.stderr
    assert asked("context", "show", "prod") == {"url": OTHER, "ca_file": "/other.pem"}
    assert not (own_folder / "prod.token").exists()
    done = run("context", "set", "prod", "--url", URL, "--token", "again", "--tls-ca-file", "/ca.pem")
    assert "left out" not in done.stderr


def test_stdin_without_a_token_takes_none_away(own_folder: Path) -> None:
    run("context", "set", "prod", "--url", URL, "--token", "secret")
    assert "stdin holds no token" in run("context", "set", "prod", "--token", "-", code=2).stderr
    assert (own_folder / "prod.token").read_text() == "secret\n"
    assert "its token" not in run("context", "set", "prod", "--token", "", "-o", "table").stderr
    assert not (own_folder / "prod.token").exists()


def test_passwords_of_addresses_are_not_shown(own_folder: Path) -> None:
    url = "http://me:secret@one:1"
    said = [
        run("context", "set", "prod", "--url", url),
        run("context", "use", "prod"),
        run("context", "use", "prod", "-o", "table"),
        run("context", "list"),
        run("context", "show"),
        run("context", "show", "prod"),
        run("context", "show", "--url", url),
        run("context", "set", "bad", "--url", "http://me:secret@one:x", code=1),
    ]
    assert "me:…@one:1" in said[1].stdout
    assert "secret" not in "".join(one.stdout + one.stderr for one in said)


def test_files_are_kept_by_their_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("context", "set", "prod", "--url", URL, "--token-file", "t", "--tls-ca-file", "~/ca.pem")
    assert asked("context", "show", "prod") == {
        "url": URL,
        "token_file": str(tmp_path / "t"),
        "ca_file": str(tmp_path / "ca.pem"),
    }
    run("context", "set", "prod", "--token-file", "")
    assert "token_file" not in asked("context", "show", "prod")


def test_contexts_that_are_none(own_folder: Path) -> None:
    run("context", "set", "prod", "--url", URL)
    for words in (("use", "prd"), ("show", "prd"), ("delete", "prd"), ("show", "--context", "prd")):
        assert "Did you mean 'prod'?" in run("context", *words, code=1).stderr
    assert "new" in run("context", "set", "test", code=2).stderr
    assert run("context", "set", "../x", "--url", URL, code=2)
    assert "is no address" in run("context", "set", "bad", "--url", "nowhere", code=1).stderr
    assert [json.loads(line)["name"] for line in run("context", "list").stdout.splitlines()] == ["prod"]
    (own_folder / "contexts.json").write_text("{")
    assert "holds no contexts" in run("context", "show", code=1).stderr


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("topic", "list"), "topics"),
        (("topics", "lst"), "list"),
        (("context", "list", "--outptu", "json"), "--output"),
        (("context", "list", "-o", "tabel"), "table"),
        (("permissions", "grant", "orders", "bob", "produec"), "produce"),
    ],
)
def test_words_that_are_nearly_right(words: tuple[str, ...], meant: str) -> None:
    said = run(*words, code=2).stderr
    assert "Did you mean" in said
    assert meant in said


def test_a_template_with_a_brace_too_few_is_no_misspelt_word() -> None:
    assert "Did you mean" not in run("context", "list", "-o", "template={a} {b", code=2).stderr
