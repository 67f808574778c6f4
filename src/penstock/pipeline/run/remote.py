"""A pipeline's state in an object store: the folder of `folder`, with objects in place of files.

<state>/<name>/lease          the process that runs the pipeline; written every few seconds as long as it runs
               epochs/        which run may go on (`lake.epochs`), and which generation counts
               <generation>/  owner.json, and Spark's checkpoint/; a new one if the checkpoint was reset
               status.json, control, redriven.<epoch>.json

Spark writes the checkpoint itself, through Hadoop's client of the store (a connector, which a user adds to Spark).

The lease shows that a pipeline runs, and keeps a second run from starting. It proves nothing: a process may be
paused for longer than it lasts. The epoch is the proof, which each batch confirms before it is computed, with its
offsets. A run that was overtaken ends there. What it had on its way may still replace the later run's file of offsets: the
next run restores the file from the confirmation, and a batch never runs with other offsets than those confirmed for it.

On one machine a lock is held besides, by the run's worker too: it may outlive the process that the lease names.

<TMPDIR>/penstock-<user>/<state>.lock
                         <state>/<epoch>/scratch/ of one run; no run touches that of a later one
"""

import hashlib
import os
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self
from uuid import uuid4

import msgspec
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # it has no types

from penstock.model.errors import ErrorKind, PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.lake.epochs import Epochs, Overtaken
from penstock.pipeline.lake.store import Location, StoreError
from penstock.pipeline.spec.spec import Spec

from .folder import Folder, Lock, Owner, SinkWriter, lock_held

BEAT_S: Final = 5.0  # between two writings of the lease, and two looks for an order to stop
LOOK_S: Final = 1.0  # between two looks whether it is written
LEASE_S: Final = 20.0  # a lease that was not written for so long is free

_SCHEMES: Final = {"s3": "s3a", "s3a": "s3a", "gs": "gs", "abfs": "abfs", "abfss": "abfss"}
_PACKAGES: Final = {
    "s3a": "org.apache.hadoop:hadoop-aws:{hadoop}",
    "gs": "com.google.cloud.bigdataoss:gcs-connector:VERSION",
    "abfs": "org.apache.hadoop:hadoop-azure:{hadoop}",
    "abfss": "org.apache.hadoop:hadoop-azure:{hadoop}",
}

# The names of S3's settings in [storage], without `aws_`, and in Hadoop.
_S3: Final = {
    "endpoint": "fs.s3a.endpoint",
    "endpoint_url": "fs.s3a.endpoint",
    "region": "fs.s3a.endpoint.region",
    "access_key_id": "fs.s3a.access.key",
    "secret_access_key": "fs.s3a.secret.key",
    "session_token": "fs.s3a.session.token",
}
_PATHS: Final = "fs.s3a.path.style.access"
_COPY: Final = "fs.s3a.optimized.copy.from.local.enabled"

# A batch writes what has changed; whole copies of the state are made by Spark's maintenance.
_CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A process. `boot` identifies the boot of its machine, within which its `pid` is valid; `beat` is another text each time."""

    host: str
    boot: str
    pid: int
    beat: str


def this_process() -> Holder:
    """The present content of a lease."""
    return Holder(host=socket.gethostname(), boot=_boot(), pid=os.getpid(), beat=str(uuid4()))


def dead(holder: Holder) -> bool:
    """Whether it was a process of this machine, and has ended. Processes of other machines are unknown."""
    if (holder.host, holder.boot) != (socket.gethostname(), _boot()):
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


@cache
def _boot() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        # Containers of one machine may have one host's name.
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def here(home: str) -> Path:
    """The folder of Spark's files on this machine."""
    name = hashlib.sha256(home.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"penstock-{os.getuid()}" / name


def make_private(folder: Path) -> None:
    """A folder of this user's alone, in a place where other users may create folders, too."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
    except OSError as error:
        raise PipelineError(f"the folder {folder} cannot be used: {error.strerror}") from None
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise PipelineError(f"the folder {folder} is not this user's alone: remove it, or set TMPDIR")


class StoreFolder(Folder):
    """A folder in an object store. `epoch`: that of the run whose process this is a part of; 0 for none."""

    version = 3  # until 2, checkpoints were copies

    def __init__(self, home: str, options: Mapping[str, str], epoch: int = 0) -> None:
        super().__init__(here(home))
        self.home = home
        self.lock = self._here.with_name(f"{self._here.name}.lock")
        try:
            self.store = Location.of(home, options)
        except PipelineError as error:
            said = error.message.replace("option path", "state").replace("the URL of a table", "its URL")
            raise PipelineError(said) from None
        self.epochs = Epochs(Location.of(f"{home}/epochs", options))
        self.stopping = False  # an order to stop was seen
        self._generation: int | None
        self._spark: Any = None
        self.taken(epoch)

    def taken(self, epoch: int) -> None:
        """The lease is held, under a new epoch: earlier reads may be old."""
        self.epoch = epoch
        self._generation = None
        self.scratch = self._here / str(epoch) / "scratch"

    def locked(self) -> Lock:
        return Lease(self)

    def in_use(self) -> bool:
        if lock_held(self.lock):
            return True
        holder = self.holder()
        if holder is None or dead(holder):
            return False
        with self.store.reached("the state"):
            if self.store.age_s("lease") < LEASE_S:
                return True
        return self.written_since(holder, BEAT_S + LOOK_S)  # the store's clock need not be ours

    def written_since(self, seen: Holder, watched_s: float) -> bool:
        """Whether a process writes the lease: no clock counts, only changes."""
        until = time.monotonic() + watched_s
        while time.monotonic() < until:
            time.sleep(min(LOOK_S, watched_s / 4))
            if (now := self.holder()) != seen:
                return now is not None
        return False

    def holder(self) -> Holder | None:
        """The process that claims to run the pipeline."""
        return self.read("lease", Holder)

    def check_owner(self, spec: Spec) -> Owner | None:
        owner = super().check_owner(spec)
        if owner is not None and owner.version < self.version and self.has("checkpoint"):
            raise PipelineError(
                f"the checkpoint in {self.home} is a copy that an older Penstock made, which this one does not read: see"
                " docs/upgrades.md"
            )
        return owner

    def own(
        self, spec: Spec, start: int | None = None, sinks: Mapping[str, SinkWriter] = MappingProxyType({})
    ) -> None:
        self.confirm()
        super().own(spec, start, sinks)

    def forget(self) -> None:
        gone = self._numbered()
        # What a run that was overtaken still writes is in another generation then.
        with self._ours():
            self._generation = self.epochs.next_generation(self.epoch)
        self._clear(f"{gone}")

    def vacate(self) -> None:
        if self.has("owner.json"):
            return
        for name in ("status.json", "control"):
            self.remove(name)

    def clean_scratch(self) -> Path:
        for run in self._here.glob("*"):
            if run.name.isdigit() and int(run.name) <= self.epoch:
                shutil.rmtree(run, ignore_errors=True)
        return self.scratch

    @property
    def checkpoint_url(self) -> str:
        return hadoop_url(f"{self.home}/{self._numbered()}/checkpoint")

    def numbers(self, name: str) -> list[int]:
        with self.store.reached("the state"):
            names = [path.rpartition("/")[2] for path in self.store.files(self._path(name))]
        return [int(name) for name in names if name.isdigit()]

    def begin(self, spark: Any) -> None:
        self._spark = spark
        connect(spark, self.checkpoint_url, self.store)
        last = self.epochs.look()
        name = f"checkpoint/offsets/{last.batch}"
        if last.batch >= 0 and self.content(name) != last.offsets.encode():
            self.replace(name, last.offsets.encode())

    def begin_batch(self, number: int) -> None:
        """Confirm the epoch, with the offsets that Spark reads."""
        text = (self.content(f"checkpoint/offsets/{number}") or b"").decode()
        last = self.epochs.last
        there = sorted(line for line in text.splitlines()[2:] if line != "-")
        running = running_offsets(self._spark, self.checkpoint_url)
        if running != there or (last.batch == number and last.offsets != text):
            raise StoreError(
                ErrorKind.UNAVAILABLE,
                f"another run has written offsets/{number} of the checkpoint in {self.home}",
            )
        with self._ours():
            self.epochs.confirm_batch(self.epoch, number, text)

    def asked_to_stop(self) -> bool:
        return self.stopping

    def clear_control(self) -> None:
        super().clear_control()
        self.stopping = False

    def has(self, name: str) -> bool:
        with self.store.reached("the state"):
            return self.store.has(self._path(name))

    def names(self) -> list[str]:
        with self.store.reached("the state"):
            return self.store.files()

    def replace(self, name: str, content: bytes) -> None:
        with self.store.reached("the state"):
            self.store.write(self._path(name), content)

    def remove(self, name: str) -> None:
        with self.store.reached("the state"):
            self.store.remove(self._path(name))

    def confirm(self) -> None:
        with self._ours():
            self.epochs.confirm(self.epoch)

    @contextmanager
    def _ours(self) -> Iterator[None]:
        try:
            yield
        except Overtaken:
            raise PipelineError(
                f"another run of this pipeline has taken over the state in {self.home}, and this one ends"
            ) from None

    def content(self, name: str) -> bytes | None:
        with self.store.reached("the state"):
            try:
                return self.store.read(self._path(name))
            except FileNotFoundError:
                return None

    def _has_checkpoint(self) -> bool:
        return self.has("checkpoint/metadata")

    def _path(self, name: str) -> str:
        """The path of a file: files of the checkpoint are below its generation."""
        if name.partition("/")[0] in ("owner.json", "checkpoint"):
            return f"{self._numbered()}/{name}"
        return name

    def _numbered(self) -> int:
        if self._generation is None:
            self._generation = self.epochs.look().generation
        return self._generation

    def _clear(self, folder: str) -> None:
        """Remove the content of a folder; Hadoop's markers of folders, empty objects, stay."""
        with self.store.reached("the state"):
            for path in self.store.files(folder):
                self.store.remove(path)


class Lease(Lock):
    """The state of a pipeline in use: a context manager. Other machines see the end of a process by its silence; on this one
    the lock is held too, also by the worker that has its `files`."""

    def __init__(self, folder: StoreFolder, beat_s: float = BEAT_S, lease_s: float = LEASE_S) -> None:
        super().__init__(folder)
        self._state = folder
        self._beat_s = beat_s
        self._lease_s = lease_s
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        make_private(self._state.lock.parent)  # before anything is written there
        super().__enter__()
        try:
            self._take()
        except BaseException:
            super().__exit__()
            raise
        return self

    def _take(self) -> None:
        folder = self._state
        seen = folder.epochs.look()
        # With the lock held: on this machine a run is over when its worker is, not when its process is.
        holder = folder.holder()
        if holder is not None and not dead(holder) and folder.written_since(holder, self._lease_s):
            raise self._in_use()
        try:
            folder.taken(folder.epochs.claim(seen))
        except Overtaken:
            raise self._in_use() from None
        self._write()
        self._over.clear()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        try:
            if self._thread is not None:
                self._thread.join()
                self._thread = None
                with suppress(PenstockError):
                    if self._state.epochs.look().epoch == self._state.epoch:
                        self._state.remove("lease")
        finally:
            super().__exit__()

    def _in_use(self) -> PipelineError:
        with suppress(PenstockError):
            if (holder := self._state.holder()) is not None:
                who = f" by process {holder.pid} on {holder.host}"
                return PipelineError(
                    f"the state in {self._state.home} is in use{who}: the pipeline is running"
                )
        return PipelineError(f"the state in {self._state.home} is in use: the pipeline is running")

    def _write(self) -> None:
        self._state.replace("lease", msgspec.json.encode(this_process()))

    def _keep(self) -> None:
        while not self._over.wait(self._beat_s):
            with suppress(PenstockError):  # the next batch finds out what has become of the store
                self._write()
                self._state.stopping = self._state.stopping or self._state.has("control")


def hadoop_url(url: str) -> str:
    """A URL as Hadoop's connectors take it. Raises PipelineError for a scheme that has none."""
    scheme, _, rest = url.partition("://")
    if scheme not in _SCHEMES:
        raise PipelineError(
            f"state: Spark has no connector for {scheme}:// ({url}): name s3a://, gs:// or"
            " abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/"
        )
    return f"{_SCHEMES[scheme]}://{rest}"


def connect(spark: Any, url: str, place: Location) -> None:
    """Let a session use a URL of `hadoop_url`, with the options of a place in S3. Raises PipelineError without the connector.

    Spark hands the settings to its workers. They are not in its configuration, which is shown: they have secrets.
    """
    conf, hadoop = spark.sparkContext.getConf(), spark.sparkContext._jsc.hadoopConfiguration()
    scheme = url.partition("://")[0]
    if scheme == "s3a":
        for key, text in _s3_settings(place).items():
            if not conf.contains(f"spark.hadoop.{key}"):
                hadoop.set(key, text)
    if not conf.contains(_CHANGELOG):
        spark.conf.set(_CHANGELOG, "true")
    jvm = spark._jvm
    try:
        jvm.org.apache.hadoop.fs.Path(url).getFileSystem(hadoop)
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage())
        if "ClassNotFoundException" not in said and "No FileSystem for scheme" not in said:
            raise PipelineError(f"Spark cannot use the state in {url}: {said}") from None
        package = _PACKAGES[scheme].format(hadoop=jvm.org.apache.hadoop.util.VersionInfo.getVersion())
        raise PipelineError(
            f"Spark lacks the connector for the state in {url}: name {package} in `spark.jars.packages`, or its jars in"
            " `spark.jars`, in the table [spark] (docs/pipelines.md)"
        ) from None


def _s3_settings(place: Location) -> dict[str, str]:
    """Those of the environment too, as deltalake reads them: a worker's may lack them."""
    given = {name.lower(): text for name, text in os.environ.items() if name.startswith("AWS_")}
    given |= place.store() or {}
    named = {name.removeprefix("aws_"): text for name, text in given.items()}
    settings = {key: named[name] for name, key in _S3.items() if named.get(name)}
    if "fs.s3a.endpoint" in settings and named.get("virtual_hosted_style_request", "").lower() != "true":
        settings[_PATHS] = "true"
    # Else RocksDB's files go through the SDK's asynchronous client, which takes "100 Continue" of some servers for the answer.
    return settings | {_COPY: "false"}


def running_offsets(spark: Any, url: str) -> list[str]:
    """The offsets, one JSON text for each source, up to which a query reads in its batch; sorted. `url`: its checkpoint."""
    found: list[str] = []
    for query in spark._jsparkSession.streams().active():
        execution = query.streamingQuery()
        if execution.resolvedCheckpointRoot().rstrip("/") == url:
            offsets = execution.availableOffsets().valuesIterator()
            while offsets.hasNext():
                found.append(str(offsets.next().json()))
    return sorted(found)
