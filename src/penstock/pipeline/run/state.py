"""The place of a pipeline's state: a folder, or an object store."""

from pathlib import Path

from penstock.pipeline.spec.spec import Spec

from .folder import Folder


def folder_of(spec: Spec, below: str = "", *, epoch: int = 0) -> Folder:
    """The state of a pipeline, or what lies `below` it. `epoch`: that of the run, for a process of it that holds no lock."""
    home = spec.home
    if isinstance(home, Path):
        return Folder(home / below)
    from .remote import StoreFolder  # which needs the extra delta

    return StoreFolder(f"{home}/{below}".rstrip("/"), spec.storage, epoch)
