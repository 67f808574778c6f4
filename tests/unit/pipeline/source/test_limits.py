from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.source.limits import IDLE_MS, Minimum, PollInterval, fit, share

backlogs = st.dictionaries(st.integers(0, 70), st.integers(0, 10**7), max_size=70)


@given(backlogs, st.integers(1, 10**6), st.integers(0, 10**9))
def test_a_share_is_never_exceeded_and_never_less_than_could_be(
    backlog: dict[int, int], most: int, turn: int
) -> None:
    takes = share(backlog, most, turn)
    assert sum(takes.values()) == min(most, sum(backlog.values()))
    assert all(0 < take <= backlog[key] for key, take in takes.items())
    waiting = [key for key, count in backlog.items() if count]
    if most >= len(waiting):
        assert sorted(takes) == sorted(waiting), "no log starves"


@given(backlogs, st.integers(1, 10**6))
def test_shares_are_in_proportion(backlog: dict[int, int], most: int) -> None:
    takes = share(backlog, most)
    total = sum(backlog.values())
    for key, take in takes.items():
        if most >= len(takes):
            assert abs(take - min(most, total) * backlog[key] / total) <= 1 + len(takes)


@given(st.integers(1, 40), st.integers(1, 40))
def test_everybody_has_a_turn(logs: int, most: int) -> None:
    backlog = dict.fromkeys(range(logs), 10**6)
    served: set[int] = set()
    turn = 0
    for _ in range(-(-logs // most)):
        takes = share(backlog, most, turn)
        served |= takes.keys()
        turn += sum(takes.values())
    assert served == backlog.keys()


def test_no_limit() -> None:
    assert share({"a": 5, "b": 0}, None) == {"a": 5}
    assert share({}, 10) == {}


@given(
    st.dictionaries(st.integers(), st.integers(1, 100), min_size=1), st.integers(1, 500), st.integers(0, 999)
)
def test_what_fits(sizes: dict[int, int], most: int, turn: int) -> None:
    fitting = fit(sizes, most, turn)
    assert fitting
    assert len(set(fitting)) == len(fitting)
    assert len(fitting) == 1 or sum(sizes[key] for key in fitting) <= most
    if sum(sizes.values()) <= most:
        assert sorted(fitting) == sorted(sizes)


def test_an_idle_query_waits_longer_and_longer() -> None:
    now = [0.0]
    pace = PollInterval(100, lambda: now[0])
    waits = []
    for _ in range(6):
        pace.idle()
        waits.append(pace.wait_ms)
    assert waits == [200, 400, 800, 1600, IDLE_MS, IDLE_MS]
    now[0] += 0.25
    assert pace.wait_ms == IDLE_MS - 250, "what has passed counts"
    now[0] += 10
    assert pace.wait_ms == 0, "a trigger that comes seldom never waits"
    pace.busy()
    assert pace.wait_ms == 100
    slow = PollInterval(5000, lambda: now[0])
    slow.idle()
    assert slow.wait_ms == 5000


def test_a_batch_waits_for_its_minimum_or_for_the_delay() -> None:
    now = [100.0]
    minimum = Minimum(10, 60, lambda: now[0])
    assert not minimum.holds(1), "the first one does not wait"
    assert minimum.holds(9)
    assert not minimum.holds(10)
    now[0] += 59
    assert minimum.holds(9)
    now[0] += 1
    assert not minimum.holds(1), "the delay counts from the last batch"
    assert minimum.holds(1)


def test_without_a_minimum_nothing_waits() -> None:
    minimum = Minimum(0, 60)
    assert not minimum.holds(1)
    assert not minimum.holds(1)
