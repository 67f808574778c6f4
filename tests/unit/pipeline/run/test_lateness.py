"""Watermarks are read from the checkpoint that is there now."""

import json
import shutil
from pathlib import Path

import pytest

from penstock.pipeline.run.folder import Folder
from penstock.pipeline.run.lateness import interrupted, watermark_ms


def checkpoint(folder: Path, *watermarks: int) -> None:
    """A checkpoint's offsets, as Spark writes them."""
    (folder / "offsets").mkdir(parents=True)
    for batch, watermark in enumerate(watermarks):
        lines = ["v1", json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 1}), "{}"]
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))


def test_a_batch_has_the_watermark_of_its_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    checkpoint(folder, 0, 1_000)
    assert [watermark_ms(Folder(tmp_path), batch) for batch in (-1, 0, 1, 1)] == [0, 0, 1_000, 1_000]
    with pytest.raises(FileNotFoundError):
        watermark_ms(Folder(tmp_path), 2)


def test_a_checkpoint_that_was_deleted_and_made_again_has_its_own_watermarks(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    checkpoint(folder, 0, 90_000)  # another size: the disk may give the same number within one tick
    assert watermark_ms(Folder(tmp_path), 1) == 90_000
    shutil.rmtree(folder)
    with pytest.raises(FileNotFoundError):
        watermark_ms(Folder(tmp_path), 1)
    checkpoint(folder, 0, 2_000)
    assert watermark_ms(Folder(tmp_path), 1) == 2_000
    (folder / "offsets" / "1").rename(folder / "offsets" / "0")
    assert watermark_ms(Folder(tmp_path), 0) == 2_000


def test_a_batch_that_was_begun_and_is_not_over_is_known(tmp_path: Path) -> None:
    assert interrupted(Folder(tmp_path)) is None
    for folder, numbers in {"offsets": (9, 10), "commits": (9,)}.items():
        (tmp_path / "checkpoint" / folder).mkdir(parents=True)
        for number in numbers:
            (tmp_path / "checkpoint" / folder / str(number)).write_text("v1")
    assert interrupted(Folder(tmp_path)) == 10
    (tmp_path / "checkpoint" / "commits" / "10").write_text("v1")
    assert interrupted(Folder(tmp_path)) is None
