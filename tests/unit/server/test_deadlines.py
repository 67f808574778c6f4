"""Who is late, and who is merely slow."""

from penstock.protocols.limits import Limits
from penstock.protocols.load import Load
from penstock.server.deadlines import Deadlines, Sending, Taking

STALL_S, RATE = 10.0, 100


def test_a_sender_is_late_after_its_time() -> None:
    sending, request = Sending(), object()
    assert not sending.late(request, 100, 5)
    assert not sending.late(request, 105, 5)
    assert sending.late(request, 105.1, 5)


def test_another_request_has_its_own_time() -> None:
    sending = Sending()
    assert not sending.late("a", 0, 5)
    assert not sending.late("b", 100, 5)
    assert sending.late("b", 106, 5)


def test_time_in_which_we_do_not_read_does_not_count() -> None:
    sending, request = Sending(), object()
    assert not sending.late(request, 0, 5)
    assert not sending.late(request, 100, 5, held_up=True)
    assert not sending.late(request, 105, 5)
    assert sending.late(request, 106, 5)


def test_a_reader_that_takes_nothing() -> None:
    taking = Taking()
    assert not taking.late(1000, 0, STALL_S, RATE)
    assert not taking.late(1000, 9, STALL_S, RATE)
    assert taking.late(1000, 10, STALL_S, RATE)


def test_a_reader_that_takes_a_byte_now_and_then() -> None:
    taking = Taking()
    assert not any(taking.late(1000 - second, second, STALL_S, RATE) for second in range(10))
    assert taking.late(990, 10, STALL_S, RATE)


def test_a_slow_reader_at_the_least_rate() -> None:
    taking = Taking()
    assert not any(taking.late(100_000 - RATE * second, second, STALL_S, RATE) for second in range(900))


def test_a_reader_that_has_taken_all_begins_anew() -> None:
    taking = Taking()
    assert not taking.late(1000, 0, STALL_S, RATE)
    assert not taking.late(0, 9, STALL_S, RATE)
    assert not taking.late(1000, 11, STALL_S, RATE)
    assert not taking.late(1000, 20, STALL_S, RATE)
    assert taking.late(1000, 21, STALL_S, RATE)


def test_a_reader_for_whom_more_is_written_meanwhile() -> None:
    taking = Taking()
    for second in range(100):
        assert not taking.late(50_000, second, STALL_S, RATE)
        taking.took(1000)


def test_looks_are_frequent_enough_for_the_shortest_time() -> None:
    assert Deadlines.of(Limits()).look_s == 1.0
    assert Deadlines.of(Limits(head_ms=400)).look_s == 0.1
    assert Deadlines.of(Limits(stall_ms=1)).look_s == 0.02


def test_load() -> None:
    load = Load(3, 2, 100)
    assert load.enter("a") == load.enter("a") == load.enter("b") == ""
    assert load.enter("c") == "the server has limits.max_connections = 3 connections"
    load.leave("b")
    assert load.enter("a") == "a has limits.max_connections_per_address = 2 connections"
    load.leave("a")
    assert load.enter("a") == ""
    assert (load.connections, load.refused) == (2, 2)
    load.held, load.unwritten = 60, 40
    assert not load.full
    load.held += 1
    assert load.full
    assert "limits.max_bytes_in_flight = 100" in load.full_reason()
