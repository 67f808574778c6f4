"""What is put together: small neighbours of one partition and one step."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.lake.compaction import groups
from penstock.pipeline.lake.values import File

MB = 1 << 20


def made(sizes: list[int], partitions: int = 1) -> list[File]:
    return [
        File(path=str(n), size=size, rows=1, at=n, values={"p": str(n % partitions)})
        for n, size in enumerate(sizes)
    ]


def test_so_many_small_ones_become_one() -> None:
    assert groups(made([1000] * 15), 128 * MB, 16) == []
    (group,) = groups(made([1000] * 16), 128 * MB, 16)
    assert [file.path for file in group] == [str(n) for n in range(16)]


def test_a_row_is_rewritten_once_a_step() -> None:
    large = [30 * MB, *[1000] * 16]
    (group,) = groups(made(large), 128 * MB, 16)
    assert "0" not in [file.path for file in group]
    assert groups(made([100 * MB] * 50), 128 * MB, 16) == [], "what is large enough is left alone"


@given(
    st.lists(st.integers(1, 300 * MB), max_size=60), st.integers(1, 3), st.integers(2, 8), st.integers(1, 256)
)
def test_groups_are_neighbours_within_bounds(
    sizes: list[int], partitions: int, least: int, target_mb: int
) -> None:
    target = target_mb * MB
    seen: set[str] = set()
    for group in groups(made(sizes, partitions), target, least):
        assert len(group) >= least
        assert sum(file.size for file in group) <= target
        assert len({file.values["p"] for file in group}) == 1
        numbers = [int(file.path) for file in group]
        assert numbers == list(range(numbers[0], numbers[-1] + 1, partitions)), (
            "none between them is left out"
        )
        assert seen.isdisjoint(file.path for file in group)
        seen |= {file.path for file in group}
