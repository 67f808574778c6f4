"""How values are encoded for the topics that are written to."""

from collections.abc import Collection
from typing import Final

from pyspark.sql.types import DataType, StringType, StructType

from penstock.client.http import HttpClient
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError

from .columns import is_plain
from .options import Options
from .target import Encoding

_AS_IT_IS: Final = ("auto", "none")
_TEXT_AS_IT_IS: Final = ("none",)  # with auto, text takes the topic's schema where that is of text


class Plans:
    """The encoding of each topic. The option's is planned on the driver; others where they come up, in tasks."""

    def __init__(self, options: Options, kind: DataType) -> None:
        self._options = options
        self._kind = kind
        self._known: dict[TopicName, Encoding | None] = {}
        self._versions: dict[TopicName, set[int]] = {}

    def encoding_of(self, topic: TopicName) -> Encoding | None:
        """The encoding for a topic's values; None where they go out as the bytes they are. Raises PipelineError."""
        if topic not in self._known:
            self._known[topic] = self._plan(topic)
        return self._known[topic]

    def check_versions(self, topic: TopicName, versions: Collection[int]) -> None:
        """Raises PipelineError for a version that the topic's schema does not have."""
        known = self._versions.setdefault(topic, set())
        if all(version in known for version in versions):
            return
        from penstock.pipeline.http.schemas import all_versions

        with HttpClient(self._options.server) as client:
            known |= set(all_versions(client, str(topic.base)))
        for version in versions:
            if version not in known:
                there = f"there are {', '.join(map(str, sorted(known)))}" if known else "it has no schema"
                raise PipelineError(
                    f"column schema_version: {topic} has no schema version {version}; {there}"
                )

    def _plan(self, topic: TopicName) -> Encoding | None:
        texts = self._options.texts
        how = texts.get("value.encode", "auto").strip().lower()
        as_it_is = _TEXT_AS_IT_IS if isinstance(self._kind, StringType) else _AS_IT_IS
        if is_plain(self._kind) and how in as_it_is:
            return None
        from penstock.pipeline.encode.plan import plan_encoding

        with HttpClient(self._options.server) as client:
            found: Encoding = plan_encoding(texts, self._kind, topic, client)
        return found


def plan(options: Options, schema: StructType) -> Plans:
    """The encodings of a frame's values, the option's topic's among them already.

    Those of text are left to the tasks: they cannot be refused, and a plan is made for every batch.
    """
    kind = schema["value"].dataType
    plans = Plans(options, kind)
    texts = (
        isinstance(kind, StringType) and options.texts.get("value.encode", "auto").strip().lower() == "auto"
    )
    if options.topic is not None and not texts:
        plans.encoding_of(options.topic)
    return plans
