"""Which broker a configuration means."""

import sys

import pytest

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.engines.opening import open_cluster
from penstock.model.errors import ErrorKind, PenstockError


def _refused(url: str, own: BrokerSettings | None = None) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        open_cluster(ClusterSettings(url=url), own or BrokerSettings())
    assert caught.value.kind is ErrorKind.BAD_PARAMETER
    return caught.value


def test_without_kafkas_client_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith("penstock.engines.kafka")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    assert "pip install 'penstock[kafka]'" in _refused("kafka://127.0.0.1:1").message


def test_the_url_decides_which_cluster_it_is() -> None:
    assert "admin_url" in _refused("pulsar://127.0.0.1:1").message
    assert "deduplication" in _refused("kafka://127.0.0.1:1", BrokerSettings(deduplication=True)).message
