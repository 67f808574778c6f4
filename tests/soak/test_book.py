"""The comparison at the end of a soak finds what it is there for."""

import pytest

from .book import Book, _compare


def stored(book: Book, *numbers: int) -> list[str]:
    return [book.writers["w-0"].value(number) for number in numbers]


def book(*, once: bool) -> Book:
    made = Book()
    writer = made.writer("w", "t", once=once)
    writer.acknowledged.update((0, 1, 6))
    return made


def test_what_is_right() -> None:
    for once in (True, False):
        made = book(once=once)
        _compare(made.writers, [stored(made, 0, 1), stored(made, 6, 2)])
    made = book(once=False)
    again = stored(made, 0)
    _compare(made.writers, [stored(made, 0, 1, 6) + again])


@pytest.mark.parametrize(
    ("once", "numbers", "said"),
    [
        (True, (0, 1), "1 acknowledged and lost"),
        (True, (0, 1, 6, 0), "0 is there 2 times"),
        (True, (0, 6, 1), "1 was stored after 6"),
    ],
)
def test_what_is_wrong(once: bool, numbers: tuple[int, ...], said: str) -> None:
    made = book(once=once)
    with pytest.raises(AssertionError, match=said):
        _compare(made.writers, [stored(made, *numbers)])


def test_a_message_that_nobody_sent() -> None:
    made = book(once=True)
    with pytest.raises(AssertionError, match="was never sent"):
        _compare(made.writers, [["other|other-0|0|"]])


def test_more_often_than_it_was_tried() -> None:
    made = book(once=False)
    values = stored(made, 0, 1, 6)
    with pytest.raises(AssertionError, match="0 is there 2 times, after 1 attempts"):
        _compare(made.writers, [[*values, values[0]]])


def test_what_comes_after_its_acknowledgement() -> None:
    made = Book()
    made.settled.add("id")
    made.received("t", "id", "value")
    assert made.broken == ["t: id came after its acknowledgement was answered"]
