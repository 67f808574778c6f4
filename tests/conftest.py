"""What every test may rely on."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from ssl import SSLContext
from tempfile import mkdtemp
from typing import Any

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG
from httpx._transports import default
from hypothesis import HealthCheck, settings
from websockets.asyncio.client import connect as connect_async
from websockets.sync.client import connect as connect_sync

from tests.support.ahead import Ahead

# httpx gives up after 5 seconds where a test says nothing; a busy machine may take longer. It has no public way to
# change what it does by default.
for part in ("connect", "read", "write", "pool"):
    setattr(DEFAULT_TIMEOUT_CONFIG, part, 60.0)

# httpx reads the certificates of every authority for each client, and `httpx.get` makes one: 40 ms of CPU, more than most
# requests take. Clients that ask for nothing special share a context.
_create_ssl_context = default.create_ssl_context


@cache
def _default_context(trust_env: bool, *_variables: str | None) -> SSLContext:
    return _create_ssl_context(trust_env=trust_env)


def _shared_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> SSLContext:
    if verify is not True or cert is not None:
        return _create_ssl_context(verify=verify, cert=cert, trust_env=trust_env)
    return _default_context(trust_env, *map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")))


default.create_ssl_context = _shared_ssl_context

# websockets gives up after 10 seconds.
for opens in (connect_async.__init__, connect_sync):
    opens.__kwdefaults__["open_timeout"] = 60.0

# Spark's Java machines live for seconds here: to start fast is worth more than to run fast.
for options in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(options, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

# Servers before a cluster keep the secret of this machine's processes there.
os.environ["XDG_STATE_HOME"] = mkdtemp(prefix="penstock-state-")

# Every Python process that a test starts begins with tests/pipeline/startup/sitecustomize.py.
_STARTUP = str(Path(__file__).parent / "pipeline" / "startup")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_STARTUP, os.environ.get("PYTHONPATH")]))

# `fast` tries the same examples every time, so that a change is judged by what it changes; `deep` looks further.
settings.register_profile(
    "fast",
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep", max_examples=2000, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--random-order", type=int, metavar="SEED", help="shuffle modules, and tests in each")
    parser.addoption("--count", type=int, default=1, metavar="N", help="run each module N times in a row")


@pytest.hookimpl(trylast=True)  # the number of the repetition is the last part of an id
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    count = metafunc.config.getoption("--count")
    if count > 1:
        metafunc.fixturenames.append("repetition")
        metafunc.parametrize("repetition", range(1, count + 1), ids=lambda number: f"{number}of{count}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed, count = config.getoption("--random-order"), config.getoption("--count")
    if seed is None and count == 1:
        return
    by_module: dict[object, list[pytest.Item]] = {}
    for item in items:
        by_module.setdefault(item.path, []).append(item)
    modules = list(by_module.values())
    if seed is not None:
        dice = Random(seed)
        dice.shuffle(modules)
        for module in modules:
            dice.shuffle(module)
    for module in modules:
        module.sort(key=repetition_of)
    items[:] = [item for module in modules for item in module]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Give each repetition of a module fixtures of its own: its tests may use fixed names on a server that they share."""
    if nextitem is not None and repetition_of(nextitem) != repetition_of(item):
        item.session._setupstate.teardown_exact(item.session)  # type: ignore[arg-type]  # all but the session's


def repetition_of(item: pytest.Item) -> int:
    spec = getattr(item, "callspec", None)
    return 1 if spec is None else int(spec.params.get("repetition", 1))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def ahead(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ahead]:
    begun = Ahead(request.session.items, tmp_path_factory.mktemp)
    yield begun
    begun.close()


@pytest.fixture
def done(request: pytest.FixtureRequest, ahead: Ahead) -> Any:
    """What the function of a test's mark `ahead` returned."""
    return ahead.result(request.node)
