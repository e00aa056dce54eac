"""`--only` and `--set` with anything in them: an answer or a ConfigError that names the option."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disentune.errors import ConfigError
from disentune.spec import space
from disentune.spec.selection import select
from fuzz.mutations import TEXTS, mutated_text, odd_value, spelled
from fuzz.trying import inputs, wrongs

QUICKSTART = Path(__file__).parents[2] / "sweeps" / "quickstart.yaml"
ASKED = space.read(QUICKSTART)
TRIALS = [{**point.config.tree(), "arm": point.arms} for point in ASKED.points]
FILTERS = [
    "framework.name == 'beta_vae' and seed < 2", "arm in ['rescued', 'adversarial']", "not recon.radius > 8",
    "'mig' in evaluation.metrics", "1 < seed <= 2 or framework.beta == 1e-3", "seed not in (1, 2)", "-1 < seed",
    "framework.beta != null", "(seed == 1) == (arm == 'rescued')", "training.compile == false",
]  # fmt: skip
ATOMS = [
    "seed", "arm", "framework", "framework.name", "framework.beta", "evaluation.metrics", "recon.radius", "true",
    "null", "None", "1", "-1", "1.5", "1e999", "0x1f", "10**9", "'x'", "b'x'", "f'{seed}'", "...", "1j", "[]", "()",
    "{}", "[seed]", "{1}", "lambda: 1", "x.y.z", "__class__", "seed.__class__", "a[0]", "f()", "*a", "a if b else c",
    "yield", "await x", "x := 1", "'\\ud800'", "'\\x00'", "é", "𝔰𝔢𝔢𝔡", "~1", "- -1", "9" * 500, "(", ")", "'\\d'",
    "#x", "\\", "\n", "\t", "\0", "\ud800", "\udcff", ";", "@", "0777", "\f", "\u2028",
]  # fmt: skip
SIGNS = ["==", "!=", "<", ">=", "in", "not in", "and", "or", "is", "not", "+", "**", "%", "|", ",", ":", ".", "", "="]
DEEP = [
    *("a" + ".a" * count for count in (249, 499)), *("not " * count + "true" for count in (100, 249)),
    *(opening * count + "1" + closing * count for opening, closing in ("()", "[]") for count in (90, 199, 499)),
    "-" * 900 + "1", "1<" * 490 + "1", "(not " * 150 + "1" + ")" * 150, "x." * 400, "seed and " * 100 + "seed",
]  # fmt: skip


def damaged(text: str, rng: Random) -> str:
    """Bytes that are no text become what Python makes of them in an argument."""
    return mutated_text(text, rng).decode(errors="surrogateescape")


def expression(rng: Random, depth: int = 0) -> str:
    """Of a grammar that is near to that of filters."""
    kind = rng.random()
    if depth > 4 or kind < 0.4:
        return rng.choice(ATOMS)
    if kind < 0.6:
        return rng.choice(["not {}", "({})", "[{}, 1]"]).format(expression(rng, depth + 1))
    return f"{expression(rng, depth + 1)} {rng.choice(SIGNS)} {expression(rng, depth + 1)}"


def selected(text: str) -> str:
    try:
        selection = select(text)
        for trial in TRIALS:
            selection(trial)
    except ConfigError as error:
        return "" if str(error).startswith("--only") else f"names no option: {error}"
    return ""


def test_a_filter_from_a_grammar_selects_or_is_refused() -> None:
    found = wrongs(inputs("--only by a grammar", 1000, expression), selected)
    assert not found, found


def test_a_damaged_filter_selects_or_is_refused() -> None:
    found = wrongs(inputs("--only", 1000, lambda rng: damaged(rng.choice(FILTERS), rng)), selected)
    assert not found, found


@pytest.mark.parametrize("text", DEEP, ids=lambda text: f"{text[:12]}, {len(text)} letters")
def test_a_deep_filter_is_read_or_refused(text: str) -> None:
    assert selected(text) == ""


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    assert selected(text) == ""


# ---- --set


CHANGED = [
    "training.steps", "seeds", "search", "search.points", "arms.rescued.framework.beta", "arms", "trial", "name",
    "framework", "framework.beta", "evaluation.metrics", "data.root", "wandb.tags", "figures", "stop.plateau",
]  # fmt: skip
RIGHT = ["1", "x", "[1, 2]", "{grid: [1, 2]}", "null", "1e-3", "{name: beta_vae, beta: 1}"]


def override(rng: Random) -> str:
    key = rng.choice([*CHANGED, *CHANGED, *TEXTS])
    value = spelled(odd_value(rng)) if rng.random() < 0.5 else damaged(rng.choice(RIGHT), rng)
    return rng.choice(["{}={}", "{}={}", "{}={}", "{}", "={}", "trial.{}={}"]).format(key, value)


def changed(text: str) -> str:
    try:
        space.read(QUICKSTART, [text])
    except ConfigError as error:
        return "" if "--set" in str(error) or str(QUICKSTART) in str(error) else f"names nothing: {error}"
    return ""


def test_any_override_is_taken_or_refused() -> None:
    found = wrongs(inputs("--set", 250, override), changed)
    assert not found, found
