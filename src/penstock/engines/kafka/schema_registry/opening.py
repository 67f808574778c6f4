"""The schemas of a server with a registry."""

from penstock.broker.settings import BrokerSettings, ClusterSettings
from penstock.broker.topic import MetaStore
from penstock.engines.kafka.naming import Naming
from penstock.engines.registry.namespaces import Namespaces
from penstock.engines.shared.documents import DocumentReader
from penstock.runtime.clock import Clock
from penstock.runtime.failures import Failures
from penstock.runtime.tasks import Tasks

from .client import RegistryClient
from .learning import Learning
from .schemas import RegistrySchemas
from .topic import SubjectNames


def open_registry(
    settings: ClusterSettings,
    documents: MetaStore,
    namespaces: Namespaces,
    naming: Naming,
    clock: Clock,
    own: BrokerSettings,
    tasks: Tasks,
    failures: Failures,
) -> RegistrySchemas | None:
    """None where the settings name no registry; raises BAD_PARAMETER for settings that cannot be used."""
    if not settings.schema_registry:
        return None
    client = RegistryClient(settings)
    names = SubjectNames(settings.schema_registry_subjects, naming.kafka_name)
    learning = Learning(client, names, clock, tasks, failures)
    reader = DocumentReader(failures)
    return RegistrySchemas(
        documents, namespaces, clock, own.max_schema_bytes, client, names, learning, reader
    )
