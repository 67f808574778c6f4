"""A pipeline whose token is missing, wrong or without rights is refused before Spark starts, by its place."""

from pathlib import Path

import pytest

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run.failures import ErrorClass, cause_of
from penstock.pipeline.run.preflight import preflight
from penstock.pipeline.spec.parse import load_spec
from penstock.testing.credentials import Issuer
from penstock.testing.server import running

FILE = """
name = "p"
[server]
token_file = "token"
[sources.s]
topics = ["in"]
[sinks.k]
input = "s"
topic = "out"
"""


@pytest.mark.parametrize(
    ("role", "kind"),
    [("", ErrorKind.UNAUTHENTICATED), ("guest", ErrorKind.FORBIDDEN), ("admin", None)],
)
def test_rights(tmp_path: Path, role: str, kind: ErrorKind | None) -> None:
    issuer = Issuer()
    (tmp_path / "p.toml").write_text(FILE)
    (tmp_path / "token").write_text(issuer.token(role) if role else "not a token")
    with running(auth=issuer.settings(super_users=("admin",))) as server:
        with HttpClient(Access(url=server.url, token=issuer.token("admin"))) as client:
            client.create_topic(TopicName.parse("in"))
        spec = load_spec(tmp_path / "p.toml", url=server.url)
        if kind is None:
            preflight(spec)
            return
        with pytest.raises(PipelineError) as refused:
            preflight(spec)
    assert refused.value.kind is kind
    assert "p.toml: [sources.s]: persistent://public/default/in: " in refused.value.message
    assert cause_of(refused.value).kind is ErrorClass.ACCESS


@pytest.mark.parametrize(
    ("change", "resource"),
    [
        (
            ('topics = ["in"]', 'topics = ["pubic/defalt/in"]'),
            "[sources.s]: topic persistent://pubic/defalt/in",
        ),
        (('topic = "out"', 'topic = "pubic/defalt/out"'), "[sinks.k]: topic persistent://pubic/defalt/out"),
        (
            ('name = "p"', 'name = "p"\ndead_letters = "pubic/defalt/no"'),
            "dead_letters: topic persistent://pubic/defalt/no",
        ),
    ],
)
def test_a_namespace_that_is_missing(tmp_path: Path, change: tuple[str, str], resource: str) -> None:
    text = FILE.replace('[server]\ntoken_file = "token"\n', "")
    assert change[0] in text
    (tmp_path / "p.toml").write_text(text.replace(*change))
    with running() as server:
        with HttpClient(server.url) as client:
            client.create_topic(TopicName.parse("in"))
        with pytest.raises(PipelineError) as refused:
            preflight(load_spec(tmp_path / "p.toml", url=server.url))
    assert refused.value.kind is ErrorKind.TOPIC_NOT_FOUND
    assert refused.value.message.endswith(
        f"p.toml: {resource} does not exist: there is no namespace pubic/defalt"
    )
