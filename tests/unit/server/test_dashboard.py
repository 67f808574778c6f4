"""The dashboard and the alert rules ask for metrics that there are."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import yaml

from penstock.broker.cluster import ClusterFigures
from penstock.broker.storage_health import CAUSES, StorageFiles, StorageHealth
from penstock.engines.shared.requests import Requests
from penstock.protocols.audit import Audit
from penstock.protocols.load import Load
from penstock.runtime.clock import LoopClock
from penstock.runtime.failures import FailureKind, Failures
from penstock.runtime.statistics import Histogram, Writes
from penstock.server.metrics import whole
from penstock.server.metrics.pipelines import _GAUGES, Event, Pipelines, Rule
from penstock.server.metrics.requests import RequestMetrics
from penstock.server.metrics.samples import Families
from penstock.server.metrics.topics import _MEANINGS

DEPLOY = Path(__file__).parents[3] / "deploy"
DASHBOARD = DEPLOY / "grafana/penstock.json"
RULES = DEPLOY / "prometheus/penstock.rules.yml"


def known() -> set[str]:
    families = Families()
    requests = RequestMetrics()
    requests.requests["topics", "GET", 200] = 1
    requests.seconds["topics"] = Histogram((1.0,))
    whole.of_endpoints(families, requests)
    whole.of_connections(families, Load(1, 1, 1), 0, 0)
    whole.of_refusals(families, Audit())
    whole.of_writes(families, Writes())
    storage = StorageHealth()
    storage.files = lambda: StorageFiles(0, 0, 0)
    whole.of_storage(families, storage)
    counted = Requests(LoopClock(), 1)
    whole.of_failures(families, Failures(LoopClock()))
    topics = SimpleNamespace(tail_bytes=0)
    whole.of_broker(families, cast(Any, SimpleNamespace(requests=counted, topics=topics)))
    whole.of_cluster(families, ClusterFigures(client_errors={("tail", "_SSL"): 1}))
    pipelines = Pipelines(cast(Any, None))
    pipelines.last["p"] = Event(
        "p", "running", 1, 1, 1.0, 1, 1.0, 1, rules=[Rule("v", "small", "expectation", "warn", 3, 1)]
    )
    pipelines.write(families)
    assert len(_GAUGES) == 6
    kinds = {family.name: family.kind for family in families.all()}
    kinds |= {name: cast(Any, kind) for name, (kind, _) in _MEANINGS.items()}
    ends = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_count", "_sum"]}
    return {name + end for name, kind in kinds.items() for end in ends[kind]}


def test_every_query_names_metrics_that_there_are() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(queries) > 20
    names = {name for query in queries for name in re.findall(r"\b(?:pulsar|penstock)_\w+", query)}
    assert names <= known(), names - known()


def test_rows_are_counted_by_rule_and_outcome() -> None:
    pipelines = Pipelines(cast(Any, None))
    rules = [Rule("v", "small", "expectation", "warn", 3, 1), Rule("v", "at", "lateness", "drop", 4, 0)]
    pipelines.last["p"] = Event("p", "running", rules=rules)
    families = Families()
    pipelines.write(families)
    (family,) = (each for each in families.all() if each.name == "penstock_pipeline_rule_rows")
    assert family.kind == "counter"
    assert family.labels == ("pipeline", "view", "kind", "rule", "outcome")
    assert [(labels[3], labels[4], value) for labels, value in family.values] == [
        ("small", "pass", 3),
        ("small", "warn", 1),
        ("at", "pass", 4),
        ("at", "drop", 0),
    ]


def test_panels_have_ids_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_names_metrics_and_labels_that_there_are() -> None:
    names = {name for rule in rules() for name in re.findall(r"\b(?:pulsar|penstock)_\w+", rule["expr"])}
    assert names <= known(), names - known()
    causes = {cause for rule in rules() for cause in re.findall(r'cause="(\w+)"', rule["expr"])}
    assert causes == set(CAUSES)
    kinds = {kind for rule in rules() for kind in re.findall(r'\{kind="(\w+)"', rule["expr"])}
    assert kinds == set(FailureKind) - {FailureKind.DEAD_LETTER}  # which has a metric of subscriptions


def test_every_alert_says_what_is_the_matter() -> None:
    found = rules()
    assert len({rule["alert"] for rule in found}) == len(found) > 5
    for rule in found:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]
