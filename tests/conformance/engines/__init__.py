"""The suite that every engine must pass, told through the contract (`penstock.broker`) alone.

Subclass it where pytest finds it, and say how a broker is made; pytest and its plugin `anyio` are needed:

    class TestMyEngine(EngineSuite):
        def make(self, folder: Path) -> Broker:
            return MyBroker(folder / "data", LoopClock())

A test asks the broker's `capabilities` where not every engine has what it is about, and proves there that the
engine refuses it with NOT_SUPPORTED. What differs by the nature of an engine is said by attributes of the class:
see `EngineTests`.
"""

from .answering import AnsweringTests
from .bench import Bench, EngineTests
from .capabilities import CapabilityTests
from .consuming import ConsumingTests
from .moving import MovingTests
from .positions import PositionTests
from .producing import ProducingTests
from .reading import ReadingTests
from .replying import ReplyingTests
from .topics import TopicTests
from .typed import TypedTests

__all__ = ["Bench", "EngineSuite", "EngineTests"]


class EngineSuite(
    ProducingTests,
    ReadingTests,
    ConsumingTests,
    AnsweringTests,
    MovingTests,
    TypedTests,
    ReplyingTests,
    TopicTests,
    PositionTests,
    CapabilityTests,
):
    """The tests of an engine, one base for each part of what an engine does; see the module."""
