"""By which schema a message is read that is published into another topic."""

from collections.abc import Iterable

from penstock.client.access import Access
from penstock.client.http import HttpClient
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.schemas import all_versions, register


def versions_for(server: Access, sources: Iterable[str], topic: str) -> dict[int, int]:
    """The version that each of the sources' has in `topic`, registered there where that is another topic.

    What is no longer registered is left out. Raises PipelineError where the topic refuses a schema.
    """
    found: dict[int, int] = {}
    target = str(TopicName.parse(topic).base)
    with HttpClient(server) as client:
        for source in sources:
            for version, schema in sorted(all_versions(client, source).items()):
                try:
                    found[version] = version if source == target else register(client, target, schema)
                except PenstockError as error:
                    if error.kind is not ErrorKind.INCOMPATIBLE_SCHEMA:
                        raise
                    raise PipelineError(
                        f"{target} refuses schema version {version} of {source}, which the archive's messages were"
                        f" written with: {error.message}",
                        error.kind,
                    ) from None
    return found
