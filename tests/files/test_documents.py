"""YAML 1.2 in, plain values out; everything else is one ConfigError with file and line."""

import io
import math
import os
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disentune.errors import ConfigError
from disentune.files import documents


def value_of(text):
    return documents.parse(text, "f.yaml").value


def refusal(text):
    """Where and what of the first problem; every failure has both."""
    with pytest.raises(ConfigError) as caught:
        documents.parse(text, "f.yaml")
    assert caught.value.problems
    return caught.value.problems[0].where, caught.value.problems[0].text


# ---- values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1e5", 100000.0),
        ("-1E+4", -10000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1_000", 1000),
        ("0o17", 15),
        ("0x1f", 31),
        ("010", 10),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("yes", "yes"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("'1e-3'", "1e-3"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("-.inf", -math.inf),
        ("1.2.3", "1.2.3"),
    ],
)
def test_scalars_are_read_as_yaml_1_2(text, value):
    read = value_of(f"a: {text}")["a"]
    assert read == value
    assert type(read) is type(value)


def test_nan_is_a_number():
    assert math.isnan(value_of("a: .nan")["a"])


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "\n\n"])
def test_an_empty_document_is_none(text):
    assert value_of(text) is None


def test_a_byte_order_mark_and_windows_line_ends_change_nothing():
    assert value_of("\ufeffa: 1\r\nb: 2\r\n") == {"a": 1, "b": 2}


def test_keys_are_texts_whatever_they_look_like():
    assert value_of("1: a\ntrue: b\nnull: c\n1e3: d") == {"1": "a", "true": "b", "null": "c", "1e3": "d"}


def test_aliases_repeat_a_value_and_a_later_anchor_may_take_the_name():
    assert value_of("a: &x [1]\nb: *x\nc: &x 2\nd: *x") == {"a": [1], "b": [1], "c": 2, "d": 2}


# ---- lines


def test_each_part_knows_its_line_and_an_unknown_part_that_of_the_part_above():
    document = documents.parse("a: 1\nb:\n  c: 2\n  d:\n    - 3\n    - e: 4\n", "f.yaml")
    assert document.where(("a",)) == "f.yaml:1"
    assert document.where(("b",)) == "f.yaml:2"
    assert document.where(("b", "c")) == "f.yaml:3"
    assert document.where(("b", "d", 1, "e")) == "f.yaml:6"
    assert document.where(("b", "d", 7, "x")) == "f.yaml:4"
    assert document.where(("nothing",)) == "f.yaml:1"


def test_a_part_that_was_set_from_outside_is_located_there():
    document = documents.parse("a: 1\nb: {c: 2}\n", "f.yaml")
    document.elsewhere["b", "c"] = "--set b.c"
    assert document.where(("b", "c", "d")) == "--set b.c"
    assert document.where(("b",)) == "f.yaml:2"


# ---- refusals


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: 2\na: 3", 3, "'a' occurs twice"),
        ("a:\n\tb: 1", 2, "'\\t'"),
        ("a: 1\nb: 'x", 2, "quoted scalar"),
        ("a: [1, 2", 1, "expected ',' or ']', but the file ends"),
        ("a: 1\nb: \0", 2, "U+0000"),
        ("a: \ud800", 1, "U+D800"),
        ("a: 1\nb: *x", 2, "undefined alias 'x'"),
        ("a: 1\n---\nb: 2", 2, "expected a single document"),
        ("a: 1\nb: 2020-01-01", 2, "'2020-01-01' is not a string, number, true, false or null; put quotes around it"),
        ("a: 1\nb: !!python/object/apply:os.system ['true']", 2, "!!pyt*** is a tag"),
        ("!!python/object:os.x {a: 1}", 1, "!!pyt*** is a tag"),
        ("a: !!set {b, c}", 1, "!!set is a tag"),
        ("a: !!binary aGk=", 1, "!!binary is a tag"),
        ("a: !mine 5", 1, "!mine is a tag"),
        ("a: !include x.yaml", 1, "!include is a tag"),
        ("a: !sk-live-of-mine 5", 1, "!sk-l*** is a tag"),
        ("a: !!int five", 1, "'five' is not"),
        ("a: !!bool maybe", 1, "'maybe' is not"),
        ("a: !!null 5", 1, "'5' is not"),
        ("a: &x {b: 1}\nc: {<<: *x}", 2, "'<<' is not part of YAML 1.2"),
        ("? [a, b]\n: 1", 1, "a key must be a plain word"),
        ("%YAML 1.1\n---\na: yes", 2, "must be YAML 1.2"),
        ("%YAML 9.0\n---\na: yes", 1, "incompatible"),
    ],
)
def test_what_is_not_plain_yaml_is_refused_at_its_line(text, line, words):
    where, said = refusal(text)
    assert where == f"f.yaml:{line}"
    assert words in said


def test_every_wrong_value_of_a_file_is_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        documents.parse("a: 1\na: 2\nb: 2020-01-01\nc: !x 1\n", "f.yaml")
    assert [problem.where for problem in caught.value.problems] == ["f.yaml:2", "f.yaml:3", "f.yaml:4"]


def test_a_long_wrong_value_is_not_repeated_whole():
    assert len(refusal("a: " + "9" * 5000)[1]) < 200


BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "&a [*a]",
        "&a {x: *a, y: *a}",
        "&a [" + ", ".join(["*a"] * 500) + "]",
        "[" * 100_000,
        "[" * 60 + "]" * 60,
        "{a: " * 300 + "1" + "}" * 300,
        "- " * 5000 + "a",
        "? " * 5000,
        "\n".join(" " * depth + "a:" for depth in range(500)),
    ],
    ids=["bomb", "cycle", "cycles", "wide cycle", "open", "deep", "deep map", "dashes", "keys", "indents"],
)
def test_bombs_cycles_and_wells_are_refused_before_they_cost_anything(text):
    began = time.process_time()
    where, said = refusal(text)
    assert where.startswith("f.yaml:")
    assert "values" in said
    assert "nested" in said
    assert time.process_time() - began < 5  # 0.5 s at most on an idle core


def test_many_values_are_refused_without_reading_them_all(monkeypatch):
    monkeypatch.setattr(documents, "MOST_VALUES", 100)
    assert len(value_of("[" + "1, " * 99 + "]")) == 99
    assert "values" in refusal("[" + "1, " * 150 + "]")[1]
    assert "values" in refusal("[" + "1, " * 300_000 + "]")[1]  # read whole, this would take a minute


def test_depth_50_is_read_and_51_is_not():
    assert value_of("[" * 50 + "]" * 50)
    assert "nested" in refusal("[" * 52 + "]" * 52)[1]


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab:-[]{}#&*!|>'\"%@`,? \n\t\0\u2028é<=~.0e", max_size=40))
def test_any_text_is_read_or_refused_with_a_line(text):
    problems = []
    try:
        documents.parse(text, "f.yaml")
    except ConfigError as error:
        problems = error.problems or ["without a line"]
    assert all(problem.where.startswith("f.yaml:") for problem in problems)


# ---- files


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.yaml does not exist"):
        documents.read(tmp_path / "nothing.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        documents.read(tmp_path)


def test_a_binary_file_is_refused_at_its_first_strange_line(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"a: 1\nb: \xff\xfe\x80")
    with pytest.raises(ConfigError) as caught:
        documents.read(path)
    assert caught.value.problems[0].where == f"{path}:2"
    assert caught.value.problems[0].text == "is not text in UTF-8"


def test_a_huge_file_is_refused_by_its_size(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_bytes(b"a: 1\n" * 250_000)
    with pytest.raises(ConfigError, match="is too large: a sweep or search space has at most 1,000,000 bytes"):
        documents.read(path)


def test_a_pipe_or_an_endless_device_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "x.yaml")
    for path in (tmp_path / "x.yaml", documents.Path("/dev/zero")):
        with pytest.raises(ConfigError, match="cannot be read: not a file but a pipe, a socket or a device"):
            documents.read(path)


def test_a_path_that_no_file_can_have_is_refused():
    with pytest.raises(ConfigError, match="cannot be read"):
        documents.read(documents.Path("a\0b"))


# ---- writing


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12) | st.sampled_from(
    [
        ":&",
        "'",
        "1e-3",
        "null",
        "yes",
        "true",
        "2020-01-01",
        "0o17",
        "~",
        "",
        " ",
        "<<",
        "=",
        "- a",
        "a: b",
        "#",
        "a\nb\n",
        "1_0",
    ]
)
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts.filter(lambda key: key != "<<"), inner, max_size=4)
    ),
    max_leaves=12,
)


def written(value):
    stream = io.StringIO()
    documents.dump(value, stream)
    return stream.getvalue()


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(texts.filter(lambda key: key != "<<"), plain, max_size=5))
def test_what_is_written_is_read_back_the_same(value):
    read = value_of(written(value))
    assert read == value
    assert repr(read) == repr(value)  # tells 1 from 1.0 and True, and gives the order of keys


def test_keys_keep_their_order_and_a_shared_list_is_written_out():
    metrics = ["mig"]
    text = written({"b": metrics, "a": metrics})
    assert text == "b: [mig]\na: [mig]\n"
