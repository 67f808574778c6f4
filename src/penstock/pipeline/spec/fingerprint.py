"""What a checkpoint belongs to: a pipeline's name and the topics that its offsets are of.

The server's address, limits, steps and sinks may change under a checkpoint; what Spark cannot carry over, it
refuses itself.
"""

import hashlib
import json

from penstock.model.names import TopicName

from .spec import Spec


def source_topics(spec: Spec) -> dict[str, str]:
    """What each source reads, in a form that does not depend on how it is written."""
    return {
        name: ",".join(sorted(str(TopicName.parse(topic)) for topic in source.topics))
        or f"pattern {source.pattern}"
        for name, source in sorted(spec.sources.items())
    }


def fingerprint(spec: Spec) -> str:
    """16 hexadecimal digits; the same for the same sources."""
    text = json.dumps(source_topics(spec), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
