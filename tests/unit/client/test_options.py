"""The options of both clients: one list of names and defaults, those of the official client."""

import inspect
import logging
from pathlib import Path
from typing import Any, get_type_hints

import pulsar
import pytest

import penstock
from penstock.client.options import (
    ClientOptions,
    ConsumerOptions,
    NoEffect,
    ProducerOptions,
    ReaderOptions,
    complete,
)

from .fake import fake

OFFICIAL = [
    (ClientOptions, pulsar.Client.__init__),
    (ProducerOptions, pulsar.Client.create_producer),
    (ConsumerOptions, pulsar.Client.subscribe),
    (ReaderOptions, pulsar.Client.create_reader),
]
OTHERWISE = {"batching_enabled"}  # the asyncio clients' default; the blocking ones' is False


@pytest.mark.parametrize(("kind", "function"), OFFICIAL, ids=lambda value: value.__name__)
def test_every_official_option_has_the_official_default(kind: Any, function: Any) -> None:
    ours = complete(kind, "call", {})
    positional = inspect.signature(getattr(penstock.Client, function.__name__)).parameters
    for name, parameter in inspect.signature(function).parameters.items():
        if name in positional:
            continue
        default = parameter.default
        if name not in OTHERWISE:
            assert repr(ours[name]) == repr(default) or int(ours[name]) == int(default), name


def test_unknown_options_are_refused_with_the_name_of_the_function() -> None:
    with pytest.raises(TypeError, match=r"subscribe\(\) got an unexpected keyword argument 'color'"):
        complete(ConsumerOptions, "subscribe", {"color": 1})
    with pytest.raises(TypeError, match=r"Client\(\) got an unexpected keyword argument 'color'"):
        penstock.Client("pulsar://127.0.0.1:1", color=1)  # type: ignore[call-arg]


async def test_both_clients_refuse_alike() -> None:
    async with fake() as broker, penstock.aio.Client(f"pulsar://127.0.0.1:{broker.port}") as ours:
        with pytest.raises(TypeError, match=r"create_reader\(\) got an unexpected keyword argument 'color'"):
            await ours.create_reader("t", penstock.MessageId.earliest, color=1)  # type: ignore[call-arg]
        with pytest.raises(penstock.OperationNotSupported, match="does not encrypt"):
            await ours.create_producer("t", encryption_key="k")


def test_an_option_without_effect_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "penstock.client"):
        complete(ClientOptions, "Client", {"io_threads": 4, "use_tls": True})
    assert [record.getMessage() for record in caplog.records] == [
        "Client(io_threads=…) has no effect: one thread does all of the client's input and output"
    ]


def test_the_documentation_lists_the_options_without_effect() -> None:
    text = (Path(__file__).parents[3] / "docs" / "client.md").read_text(encoding="utf-8")
    for kind, _ in OFFICIAL:
        for name, hint in get_type_hints(kind, include_extras=True).items():
            if any(isinstance(mark, NoEffect) for mark in hint.__metadata__):
                assert f"`{name}`" in text, name
