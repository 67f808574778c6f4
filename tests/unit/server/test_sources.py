from pathlib import Path

import pytest

from penstock.server.config import Config, ConfigError, host_and_port
from penstock.server.sources import load


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "penstock.toml"
    file.write_text(text)
    return file


def test_nothing_given_means_the_defaults() -> None:
    assert load() == Config()
    assert load().http.listen == "127.0.0.1:8080"
    assert load().data.folder == Path("penstock-data")


def test_flags_go_before_the_environment_before_the_file_before_the_defaults(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '[http]\nlisten = "a:1"\nkeep_alive_s = 1\nbacklog = 1\n[broker]\ndeduplication = true\n',
    )
    environment = {"PENSTOCK_HTTP__LISTEN": "b:2", "PENSTOCK_HTTP__KEEP_ALIVE_S": "2"}
    config = load(file=file, environment=environment, flags={"http.listen": "c:3", "data.folder": None})
    assert config.http.listen == "c:3"
    assert config.http.keep_alive_s == 2
    assert config.http.backlog == 1
    assert config.broker.deduplication is True
    assert config.data.folder == Path("penstock-data")


def test_texts_of_the_environment_become_what_the_key_is() -> None:
    config = load(
        environment={
            "PENSTOCK_BROKER__AUTO_CREATE_TOPICS": "false",
            "PENSTOCK_LIMITS__MAX_READ_BYTES": "1000",
            "PENSTOCK_DATA__FOLDER": "/somewhere",
            "PENSTOCK_DATA__STORE": "memory",
        }
    )
    assert config.broker.auto_create_topics is False
    assert config.limits.max_read_bytes == 1000
    assert config.data.folder == Path("/somewhere")
    assert config.data.store == "memory"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[http]\nlisen = 'x'\n", "unknown key 'http.lisen'"),
        ("[htp]\nlisten = 'x'\n", "unknown section 'htp'"),
        ("listen = 'x'\n", "unknown key 'listen'"),
        ("[http]\nlisten = 8080\n", "'http.listen'"),
        ("[http]\nlisten = 'nowhere'\n", "'nowhere' is not host:port"),
        ("[http]\nlisten = 'a:70000'\n", "'http.listen'"),
        ("[http]\nkeep_alive_s = 0\n", "must be within 1"),
        ("[http]\nadvertise = 'ftp://a:1'\n", "http://host:port or https://host:port"),
        ("[http]\ntrusted_proxies = ['10.0.0.1/8']\n", "has host bits set"),
        ("[http]\nkeep_alive_s = '5'\n", "'http.keep_alive_s'"),
        ("[broker]\ndeduplication = 'yes'\n", "'broker.deduplication'"),
        ("[broker]\nmax_partitions = -1\n", "'broker.max_partitions'"),
        ("[log]\nformat = 'xml'\n", "'log.format'"),
        ("[storage]\nsize_max_bytes = 1000000\n", "at least 134217728"),
        ("[storage]\nreserve_bytes = -1\n", "must be within 0"),
        ("[http\n", "is not TOML"),
    ],
)
def test_the_file_s_mistakes_are_refused_with_key_and_file(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load(file=file)
    assert said in str(refused.value)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_HTTP__LISEN", "x"),
        ("PENSTOCK_HTP__LISTEN", "x"),
        ("PENSTOCK_LISTEN", "x"),
        ("PENSTOCK_HTTP_LISTEN", "a:1"),
        ("PENSTOCK_BROKER__MAX_PARTITIONS", "many"),
    ],
)
def test_the_environment_s_mistakes_are_refused_with_the_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load(environment={name: value})


def test_variables_that_are_somebody_else_s_are_left_alone() -> None:
    environment = {
        "PENSTOCK_URL": "http://elsewhere",
        "PENSTOCK_TOKEN": "secret",
        "PENSTOCK_CONFIG": "x.toml",
        # what Kubernetes says of a service named penstock
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_SERVICE_PORT": "8080",
        "PENSTOCK_SERVICE_PORT_HTTP": "8080",
        "PENSTOCK_PORT": "tcp://10.0.0.1:8080",
        "PENSTOCK_PORT_8080_TCP_ADDR": "10.0.0.1",
        "PENSTOCKX__Y": "z",
    }
    assert load(environment=environment) == Config()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read"):
        load(file=tmp_path / "nowhere.toml")


def test_flags_are_checked_like_everything_else() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'http\.x' from the command line"):
        load(flags={"http.x": "1"})
    assert load(flags={"broker.max_partitions": "7"}).broker.max_partitions == 7


@pytest.mark.parametrize(
    ("text", "meant"),
    [("a:1", ("a", 1)), (":0", ("", 0)), ("[::1]:8080", ("::1", 8080)), ("0.0.0.0:80", ("0.0.0.0", 80))],
)
def test_addresses(text: str, meant: tuple[str, int]) -> None:
    assert host_and_port(text) == meant


@pytest.mark.parametrize("text", ["a", "a:", "a:b", "::1:80", "a:-1", "a:65536", ""])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="not host:port"):
        host_and_port(text)


def test_rates_of_roles(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(
        "[limits]\nmax_requests_per_s = 5\n[limits.role_rates]\nspark = { max_requests_per_s = 0 }\n"
    )
    limits = load(file=file).limits
    assert (limits.max_requests_per_s, limits.role_rates["spark"].max_requests_per_s) == (5, 0)
    assert limits.role_rates["spark"].max_bytes_per_s is None
    loaded = load(environment={"PENSTOCK_LIMITS__ROLE_RATES": '{"a": {"max_bytes_per_s": 7}}'}).limits
    assert loaded.role_rates["a"].max_bytes_per_s == 7
    for bad in ('{"a": {"max_bytes_per_s": -1}}', '{"a": {"max_bytes": 1}}', '{"a": 1}'):
        with pytest.raises(ConfigError, match=r"limits\.role_rates"):
            load(environment={"PENSTOCK_LIMITS__ROLE_RATES": bad})
