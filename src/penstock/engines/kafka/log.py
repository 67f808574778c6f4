"""The log of a topic or partition of Kafka: a record is an entry of one message, whose id and offset are Kafka's offset.

Ids rise and may skip, as transactions and compaction leave gaps: what a read returns has none, and what lies between the id
that was asked for and the first entry is no record. A log with followers is followed itself, and its newest entries are held
in memory; other positions are read by readers that all logs share. Where it begins and ends is what was learned last.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.engines.followers import Followers
from penstock.engines.tail import Tail
from penstock.model.entry import Entry
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.message_id import EARLIEST, LATEST, MessageId
from penstock.model.names import TopicName
from penstock.runtime.clock import Clock
from penstock.runtime.tasks import Tasks

from .driver.fetcher import Fetcher
from .driver.reader import OutOfRange
from .driver.record import Record
from .ends import EndLookup
from .following import Following
from .naming import Place
from .records import entries_of

READ_BYTES: Final = 1 << 20
