"""Rows are read once each, while their file grows, strictly or loosely."""

import json

import pytest

from disentune.errors import ConfigError
from disentune.files.storage import place
from disentune.runs.rows import RowReader


def lines(*steps):
    return "".join(json.dumps(row(step)) + "\n" for step in steps)


def row(step):
    return {"step": step, "metrics": {"loss": 1.0}}


@pytest.mark.parametrize("read", [RowReader.rows, RowReader.loose_rows])
def test_a_reader_gives_each_complete_row_once(tmp_path, read):
    path = tmp_path / "rows.jsonl"
    reader = RowReader(path)
    assert read(reader) == []
    path.write_text(lines(1) + '{"st')
    assert read(reader) == [row(1)]
    path.write_text(lines(1, 2, 3))
    assert read(reader) == [row(2), row(3)]
    assert read(reader) == []


def test_an_object_that_grows_gives_each_row_once(object_store):
    path = place("s3://bucket/rows.jsonl")
    reader = RowReader(path)
    assert reader.rows() == []
    path.write_bytes(lines(1).encode())
    assert reader.rows() == [row(1)]
    assert reader.rows() == []
    path.write_bytes(lines(1, 2).encode())
    assert reader.rows() == [row(2)]


def test_a_damaged_line_is_named_by_its_place_in_the_whole_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(lines(1, 2))
    reader = RowReader(path)
    reader.rows()
    with open(path, "a") as file:
        file.write(lines(3) + "{ruined\n")
    with pytest.raises(ConfigError, match=r"rows\.jsonl:4 is damaged; remove the folder"):
        reader.rows()


def test_a_loose_reader_gives_none_for_a_line_that_is_not_json_and_checks_nothing_else(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{ruined\n{"step": "x"}\n' + b"[" * 100_000 + b"\n\n" + lines(4).encode())
    assert RowReader(path).loose_rows() == [None, {"step": "x"}, None, None, row(4)]
