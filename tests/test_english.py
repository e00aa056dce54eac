"""The texts of the project avoid phrases at which an English-speaking reader stops; each has a plain alternative."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PLACES = (
    "src", "docs", "notebooks", "sweeps", "search_spaces", "cluster", "benchmarks", ".github",
    "cluster.yaml", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "CITATION.cff", "Makefile",
    "mkdocs.yml", "pyproject.toml",
)  # fmt: skip
KINDS = (
    ".py",
    ".md",
    ".html",
    ".css",
    ".js",
    ".yaml",
    ".yml",
    ".ipynb",
    ".sbatch",
    ".sh",
    ".json",
    ".toml",
    ".cff",
    "",
)
MARKDOWN_AND_COMMENTS = r"""[\s"#>*]+(?:f")?"""
"""What may separate two words of a phrase: also a line break within a comment or within a string of several lines."""
PER = r"an? (?:trial|image|latent|step|row|kind|node|source|point|factor|report|arm|seed|batch|worker)\b"
NOT = r"(?:as|at|by|for|from|has|if|in|is|of|on|that|to|when|while|with)"


class Phrase(NamedTuple):
    pattern: str
    """Where it has a space, any separator may be."""
    instead: str


PHRASES = (
    Phrase(r"\bg(?:oes|oing|one) on\b(?! to\b)", "continues"),
    Phrase(r"\bgo on\b(?! to\b)", "continue"),
    Phrase(r"\bstands? here\b", "is here, occurs here"),
    Phrase(r"\bmend(?:s|ed|ing)?\b", "fix"),
    Phrase(r"\b(?:leav(?:e|es|ing)|left) (?:\S+ )?away\b", "omit"),
    Phrase(r"\bbut for\b(?! (?:every|each|all|any|both|some|one|that reason|now)\b)", "except for"),
    Phrase(r"\bwhoever\b", "anyone who, the process that"),
    Phrase(r"\b(?:is|are) told\b(?! (?:apart|from)\b)", "receives, learns; is recognised by; is printed"),
    Phrase(r"\btold as such\b", "marked as such"),
    Phrase(r"\bof late\b", "recently"),
    Phrase(r"\bnot to be seen\b", "missing, not visible"),
    Phrase(r"\bshall\b", "must, should, will"),
    Phrase(r"\bhas to say\b", "reports, must say"),
    Phrase(rf"\d ?(?:ms|s|min|h|hours?|minutes?|seconds?|[kKMG]B|nats|%) {PER}", "per"),
    Phrase(rf"\b(?:dots?|time|hours|minutes|seconds|nats|megabytes) {PER}", "per"),
    Phrase(rf"\bone (?!{NOT} )(?:\S+ )?(?!{NOT} )\w+ {PER}", "per"),
    Phrase(r"\bonce an? (?:node|trial|run|sweep|machine)[,.;:)]", "once per"),
)
ALLOWED: dict[str, tuple[str, ...]] = {}
"""File: passages of it that may have a phrase, for example because they quote somebody."""


class Hit(NamedTuple):
    line: int
    found: str
    instead: str


def hits(text: str) -> Iterator[Hit]:
    for phrase in PHRASES:
        for match in re.finditer(phrase.pattern.replace(" ", MARKDOWN_AND_COMMENTS), text, re.IGNORECASE):
            yield Hit(text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), phrase.instead)


def files() -> list[str]:
    found = [path for place in PLACES for path in ([ROOT / place, *(ROOT / place).rglob("*")])]
    texts = [path for path in found if path.is_file() and path.suffix in KINDS and not _generated(path)]
    return sorted(str(path.relative_to(ROOT)) for path in texts)


def _generated(path: Path) -> bool:
    """The reference repeats texts of the sources, which are checked themselves."""
    return path.suffix == ".md" and path.read_text().startswith("<!-- Written by docs/generate.py")


def complaints(file: str) -> list[str]:
    text = (ROOT / file).read_text()
    for passage in ALLOWED.get(file, ()):
        text = text.replace(passage, re.sub(r"\w", "x", passage))
    return [f"{file}:{hit.line}  '{hit.found}': write {hit.instead}" for hit in sorted(hits(text))]


def test_no_text_has_a_phrase_at_which_readers_stop():
    found = [line for file in files() for line in complaints(file)]
    assert not found, "\n" + "\n".join(found)


def test_every_text_that_users_read_is_searched():
    expected = {
        "README.md", "CONTRIBUTING.md", "sweeps/quickstart.yaml", "search_spaces/beta.yaml", "cluster/slurm.sh",
        "cluster/Dockerfile", "notebooks/01_read_results.ipynb", "src/disentune/dashboard/page/latents.js",
    }  # fmt: skip
    assert expected <= set(files())


def test_every_exception_is_needed():
    for file, passages in ALLOWED.items():
        assert all(passage in (ROOT / file).read_text() and [*hits(passage)] for passage in passages), file


@pytest.mark.parametrize(
    ("text", "line", "instead"),
    [
        ("the run\ngoes on from there", 2, "continues"),
        ("its results cannot be gone on with", 1, "continues"),
        ("# a trial that goes\n    # on", 1, "continues"),
        ('f"to go on "\n    f"with {run}"', 1, "continue"),
        ("its trials go on elsewhere", 1, "continue"),
        ("CHANGE_ME stands here still", 1, "is here, occurs here"),
        ("must be mended; Mend the file", 1, "fix"),
        ("or leave --set away", 1, "omit"),
        ("a key that is left away", 1, "omit"),
        ("equal but for rounding", 1, "except for"),
        ("Whoever looks", 1, "anyone who, the process that"),
        ("the user is told why", 1, "receives, learns; is recognised by; is printed"),
        ("it is not to be\nseen on 3 nodes", 1, "missing, not visible"),
        ("rows of late sessions", 1, "recently"),
        ("you shall", 1, "must, should, will"),
        ("what the process has to say", 1, "reports, must say"),
        ("19 ms a trial", 1, "per"),
        ("a dot a trial", 1, "per"),
        ("wall time a trial", 1, "per"),
        ("one row an image", 1, "per"),
        ("One W&B run a trial", 1, "per"),
        ("prepared once a node.", 1, "once per"),
    ],
)
def test_a_phrase_is_found_with_its_line_and_its_alternative(text, line, instead):
    assert (line, instead) in [(hit.line, hit.instead) for hit in hits(text)]


@pytest.mark.parametrize(
    "text",
    [
        "we recommend an amendment to the commender",
        "slow for one, but for every other factor it is fast",
        "the two can be told apart, and they are told apart by name",
        "runs a trial in 3 s and a trial in 4",
        "once a trial has ended",
        "one of a trial's rows, one process of a node, and the last one is a trial",
        "a list of latents, calculated later",
        "marshalled in a shallow copy",
        "go on to the next page",
    ],
)
def test_ordinary_sentences_pass(text):
    assert [*hits(text)] == []
