"""Seeded damage to our own example files: to the tree that a file means, to its text, and to its bytes."""

import copy
import json
import math
import random
from collections.abc import Callable
from typing import Any

Tree = Any
Place = tuple[Any, Any]
"""A container of a tree, and the key or index of one of its values."""

BOOL_LIKE = [
    "yes", "no", "on", "off", "True", "FALSE", "null", "~", "NaN", "inf", ".inf", "-.INF", "0x1f", "0o17", "1_000",
    "1e-3", "1:30", "2020-01-01", "<<", "=",
]  # fmt: skip
STRANGE = [
    "", " ", "x", "é", "中文", "\u202e", "\u2028", "\U0001f600", "\ufeff", "a b", "a.b", "..", "/", "-", "--set", "#",
    "'", '"', "%", "{0}", "%s", "a: b", "{grid: [1]}", "[red]bold[/red]", "[/]", "../../etc/passwd", "/etc/passwd",
    "\t", "\n", "a\nb", "\0", "\ud800", "x" * 300, "9" * 5000, "nowhere.module:THING", "json:loads", ":", "a:", ":b",
]  # fmt: skip
KNOWN = [
    "mig", "mse", "ada_gvae", "beta_vae", "xysquares", "mlp", "linear", "conv64", "overlap", "grid", "random", "optuna",
    "pbt", "sum", "mean", "fast", "both",
]  # fmt: skip
TEXTS = [*BOOL_LIKE, *STRANGE, *KNOWN]
NUMBERS = [
    0, 1, 2, 3, 7, -1, 0.5, -0.0, 1e-300, 5e-324, 1e300, 1.7976931348623157e308, math.nan, math.inf, -math.inf, 10**6,
    10**9, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30, 10**400, 1e16, 1e-9, 0.1 + 0.2,
]  # fmt: skip
KEYS = [
    *BOOL_LIKE, *STRANGE[:20], ".", "a..b", ".name", "name.", "framework.", "name", "grid", "choice", "uniform",
    "log_uniform", "int", "normal", "schedule", "search_space", "trial", "arms", "seeds", "seed", "search", "scheduler",
    "objective", "figures", "wandb", "data", "stop", "resources", "retries", "metric", "mode", "points", "keys", "x",
    "every", "only", "y", "api_key", "framework", "framework.beta", "dataset.name", "model.latents", "training.steps",
    "evaluation.metrics", "recon.alpha",
]  # fmt: skip
SETTINGS: dict[str, list[Tree]] = {
    "search": [{"name": "random", "points": 3}, {"name": "optuna", "points": 4}, {"name": "random", "points": 10**9}],
    "scheduler": [{"name": "asha", "grace": 300}, {"name": "median", "grace": 0}, {"name": "pbt", "every": 300}],
    "stop": [{"plateau": {"evaluations": 2}}, {"steps": 0}, {"wall_time_s": -1}],
    "wandb": [{"project": "x"}, {"api_key": "x"}, {"group": "a/../b"}, {"tags": ["", "x" * 100]}],
    "data": [{"root": root} for root in ("/nowhere", "nowhere", "/a\0b", "~nobody/x", "/" + "x" * 5000)],
    "figures": [["violins"], [{"name": "trend", "x": "seed"}], [{"name": "heat_map", "only": "a <"}], "all", [None]],
    "resources": [{"cpu": 0}, {"gpu": 1.5}, {"gpu": 1}, {"cpu": 5e-324}, {"concurrent": 10**30}],
    "pictures": ["never", "sometimes", {"when": None}],
    "retries": [{"error": -1}, {"hang_after_s": 1e-300}],
    "seeds": [0, 1, 7, [0, 0], [-1], [2**63], ["0"], 100_001, "3", {"grid": [1]}, 1.5],
}


# ---- trees


def places(tree: Tree) -> list[Place]:
    """Every value of a tree, as where it stands."""
    found: list[Place] = []
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in pairs:
        found.append((tree, key))
        found += places(value)
    return found


def odd_value(rng: random.Random) -> Tree:
    """What a person, an editor or a program might put in a value's place, and what nobody would."""
    kinds: list[Callable[[], Tree]] = [
        lambda: rng.choice(NUMBERS),
        lambda: rng.choice(TEXTS),
        lambda: rng.choice([None, True, False, [], {}, [[]], [None], {"": None}]),
        lambda: {rng.choice(KEYS): rng.choice(NUMBERS)},
        lambda: rng.choices(NUMBERS, k=rng.randint(1, 4)),
        lambda: {rng.choice(["grid", "choice"]): rng.choices([*NUMBERS, *TEXTS], k=rng.randint(0, 3))},
        lambda: {rng.choice(["uniform", "log_uniform", "int", "normal"]): rng.choices(NUMBERS, k=2)},
        lambda: {"schedule": rng.choice(["linear", "cyclic", "constant", "x", None]), "initial": 0, "final": 4},
        lambda: nested(rng.choice(NUMBERS), rng.choice([2, 5, 30, 49, 60, 200]), rng),
    ]
    return rng.choice(kinds)()


def nested(value: Tree, depth: int, rng: random.Random) -> Tree:
    for _ in range(depth):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def misspelt(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word) + 1)
    swapped = word[: at - 1] + word[at : at + 1] + word[at - 1 : at] + word[at + 1 :] if at else word[::-1]
    longer = word[:at] + rng.choice("abcdefghijk_. ") + word[at:]
    return rng.choice([word[:at] + word[at + 1 :], longer, swapped, word.upper(), f" {word}"])


def _replace(tree: Tree, place: Place, rng: random.Random) -> None:
    place[0][place[1]] = odd_value(rng)


def _nudge(tree: Tree, place: Place, rng: random.Random) -> None:
    """As someone does who tries another value: often the file stays right."""
    value = place[0][place[1]]
    if isinstance(value, bool):
        place[0][place[1]] = not value
    elif isinstance(value, int):
        place[0][place[1]] = rng.choice([value + 1, value * 2, value // 2, float(value) if value < 2**53 else value])
    elif isinstance(value, float):
        place[0][place[1]] = rng.choice([value * 2, value / 3, round(value) if math.isfinite(value) else 0.0])
    elif isinstance(value, str):
        place[0][place[1]] = rng.choice(KNOWN)
    elif isinstance(value, list):
        place[0][place[1]] = rng.choice([value[::-1], value[:1], [*value, value[0]] if value else value])


def _rescale(tree: Tree, place: Place, rng: random.Random) -> None:
    """A number by another one; of something else its text."""
    value = place[0][place[1]]
    if isinstance(value, bool) or not isinstance(value, int | float):
        place[0][place[1]] = str(value)
    elif abs(value) < 2**63:
        place[0][place[1]] = rng.choice([-value, value * 10, value * 1000, value + 0.5, float(value), value * 10**12])
    else:
        place[0][place[1]] = rng.choice([-value, [value]])


def _remove(tree: Tree, place: Place, rng: random.Random) -> None:
    del place[0][place[1]]


def _rename(tree: Tree, place: Place, rng: random.Random) -> None:
    """In its place among the keys, so that lines stay as they were."""
    container, old = place
    if not isinstance(container, dict):
        _replace(tree, place, rng)
        return
    new = misspelt(old, rng) if rng.random() < 0.6 else rng.choice(KEYS)
    items = [(new if key == old else key, value) for key, value in container.items()]
    container.clear()
    container.update(items)


def _exchange(tree: Tree, place: Place, rng: random.Random) -> None:
    """Two values, unless one stands inside the other."""
    other = rng.choice(places(tree))
    one, two = place[0][place[1]], other[0][other[1]]
    if not any(one is value for value in _values(two)) and not any(two is value for value in _values(one)):
        place[0][place[1]], other[0][other[1]] = two, one


def _values(tree: Tree) -> list[Tree]:
    return [tree, *(container[key] for container, key in places(tree))]


def _wrap(tree: Tree, place: Place, rng: random.Random) -> None:
    value = place[0][place[1]]
    wraps = [[value], {"grid": [value]}, {"grid": value}, {"choice": [value, value]}, {"value": value}, {"name": value}]
    place[0][place[1]] = rng.choice([*wraps, nested(value, 60, rng)])


def _reshape(tree: Tree, place: Place, rng: random.Random) -> None:
    """A list in a mapping's place, and a mapping in a list's."""
    value = place[0][place[1]]
    if isinstance(value, dict):
        place[0][place[1]] = rng.choice([list(value), list(value.values()), [list(pair) for pair in value.items()]])
    elif isinstance(value, list):
        place[0][place[1]] = {str(number): below for number, below in enumerate(value)}
    else:
        place[0][place[1]] = rng.choice([[value], {"name": value}])


def _dot(tree: Tree, place: Place, rng: random.Random) -> None:
    """`a: {b: 1}` as `a.b: 1`, or a key with a dot too many."""
    container, key = place
    if isinstance(container, dict) and isinstance(container[key], dict):
        value = container.pop(key)
        container.update({f"{key}.{part}": below for part, below in value.items()})
    elif isinstance(container, dict):
        container[f"{key}.{rng.choice(KEYS)}"] = container.pop(key)


def _graft(tree: Tree, place: Place, rng: random.Random) -> None:
    """A part of the tree in another place too."""
    other = rng.choice(places(tree))
    place[0][place[1]] = copy.deepcopy(other[0][other[1]])


def _insert(tree: Tree, place: Place, rng: random.Random) -> None:
    container = place[0]
    if isinstance(container, dict):
        container[rng.choice(KEYS)] = odd_value(rng)
    else:
        container.insert(rng.randrange(len(container) + 1), odd_value(rng))


def _lengthen(tree: Tree, place: Place, rng: random.Random) -> None:
    """A list or text much longer than it was, or many values where there was one."""
    value = place[0][place[1]]
    place[0][place[1]] = (value if isinstance(value, list | str) else [value]) * rng.choice([2, 10, 100])


def _set(tree: Tree, place: Place, rng: random.Random) -> None:
    """A setting of the sweep."""
    key = rng.choice(list(SETTINGS))
    if isinstance(tree, dict):
        tree[key] = copy.deepcopy(rng.choice(SETTINGS[key]))


CHANGES = (
    *(_nudge, _nudge, _nudge, _nudge, _replace, _replace, _rescale, _rescale, _remove, _rename, _rename),
    *(_exchange, _wrap, _reshape, _dot, _graft, _insert, _lengthen, _set),
)


def mutated_tree(tree: Tree, rng: random.Random) -> Tree:
    """One to three changes; the given tree stays as it is."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        if found := places(tree):
            rng.choice(CHANGES)(tree, rng.choice(found), rng)
    return tree


def spelled(tree: Tree, depth: int = 1) -> str:
    """As YAML in JSON's notation, a line a value; numbers that JSON lacks in YAML's own."""
    if isinstance(tree, float) and not math.isfinite(tree):
        return ".nan" if math.isnan(tree) else f"{'-' if tree < 0 else ''}.inf"
    if not isinstance(tree, dict | list) or not tree:
        return json.dumps(tree)
    opening, closing = "{}" if isinstance(tree, dict) else "[]"
    pairs = tree.items() if isinstance(tree, dict) else (("", value) for value in tree)
    named = [
        (f"{json.dumps(str(key))}: " if opening == "{" else "") + spelled(value, depth + 1) for key, value in pairs
    ]
    margin = "\n" + " " * min(depth, 40)
    return f"{opening}{margin}{f',{margin}'.join(named)}{margin}{closing}"


# ---- texts


BOMB = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)
SIGNS = "\t\0\x07\r\x85:-[]{}#&*!|>'\"%@`,?\\ \ud800\u2028é<="
TAGS = [
    "!!python/object/apply:os.system ['true']", "!!python/object:os.x {}", "!!python/name:os.system", "!!binary aGk=",
    "!!python/tuple [1, 2]", "!!set {a, b}", "!!omap [a: 1]", "!!timestamp", "!<x>", "!", "!e!x", "!mine",
    *(f"!!{kind}" for kind in ("str", "int", "float", "map", "seq", "null", "bool")),
]  # fmt: skip
HEADS = [
    "%YAML 1.1\n---\n", "%YAML 1.2\n---\n", "%YAML 9\n---\n", "%TAG ! tag:x,2000:\n---\n", "%x\n", "%YAML 1.2\n",
    "---\n", "...\n", "--- &a\n", "\ufeff", "\ufeff\ufeff", "# \u2028\n", "\n" * 50, "- a\n", "a\n", "{", "[", "? ",
    "|\n",
]  # fmt: skip
VALUES = [
    "|2\n   a", ">-\n  a\n b", '"\\ud800"', '"\\x00"', '"\\U00110000"', "\x85y", "\u2029", "\x07", "\ufffe", "\x7f",
    "@a", "`a`", "%a", "*", "&", "0b1", "1__0", "0x", "0o8", "+.inf", ".", "1e", "1e999", "2020-13-45", "99999-99-99",
    "12:30:45", "=", "<<", "9" * 4000, "1" + "0" * 5000, "y " * 20_000, "[" + "1, " * 3000 + "]", "[" * 500,
    "{a: " * 300, "'" + "''" * 9000 + "'", '"' + "\\n" * 9000 + '"', "&a [*a]", "[*a0]",
]  # fmt: skip
TAILS = [
    "---\na: 1", "...", "---\n---", "}", "]", "\t", " a: 1", "- 1", '"', "'", "? a\n: b", "? [a]\n: b", "? {a: b}\n: c",
    f'? "{"9" * 5000}"\n: 1', f'wandb:\n  ? "{"9" * 5000}"\n  : 1', "&a a: *a", "<<: {a: 1}", "<<: *x",
    "<<: &m {a: *m}", "*a : 1", BOMB, "x" * 5000 + ": 1", "#" + "z" * 100_000, "- " * 2000 + "a", "=: 1", "null: 1",
    "~: 1", ": 1", "? ", "!!str : 1", *(f"x: {value}" for value in VALUES),
]  # fmt: skip
PARTS = [("  ", "\t"), (": ", ":"), (",", ";"), ("{", "["), ("[", "{"), ("}", ""), ("\n", "\r\n"), ("\n", "\r"),
         ("\n", "\n\n"), ("\n", "\u2028")]  # fmt: skip


def _inserted(text: str, piece: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + piece + text[at:]


def _before_a_value(text: str, piece: str, rng: random.Random) -> str:
    """After a colon and a space."""
    at = rng.choice([end + 2 for end in range(len(text) - 1) if text[end : end + 2] == ": "] or [0])
    return text[:at] + piece + text[at:]


def _without(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + text[at + rng.choice([1, 2, 5, 40]) :]


def _with_line(text: str, rng: random.Random) -> str:
    """One of its lines twice, out of line, behind a tab, or all of them in another order."""
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    doubled = [*lines[: at + 1], *lines[at:]]
    tabbed = [*lines[:at], f"\t{lines[at].lstrip()}", *lines[at + 1 :]]
    shifted = [*lines[:at], f" {lines[at]}", *lines[at + 1 :]]
    return "\n".join(rng.choice([doubled, doubled, tabbed, shifted, rng.sample(lines, len(lines))]))


TextChange = Callable[[str, random.Random], str]
TEXT_CHANGES: list[TextChange] = [
    lambda text, rng: text[: rng.randrange(len(text) + 1)], lambda text, rng: text[rng.randrange(len(text) + 1) :],
    lambda text, rng: text * rng.choice([2, 5]), _without, _without, _with_line, _with_line, _with_line,
    lambda text, rng: _inserted(text, rng.choice(SIGNS), rng),
    lambda text, rng: _inserted(text, rng.choice(TEXTS), rng),
    lambda text, rng: _before_a_value(text, f"{rng.choice(TAGS)} ", rng),
    lambda text, rng: _before_a_value(text, f"{rng.choice(VALUES)} #", rng),
    lambda text, rng: _before_a_value(_before_a_value(text, "&a ", rng), rng.choice(["*a ", "*a #", "*b "]), rng),
    lambda text, rng: _before_a_value(text, rng.choice(["&a {<<: *a} #", "{<<: {name: x}} #", "| #", "- "]), rng),
    lambda text, rng: rng.choice(HEADS) + text, lambda text, rng: f"{text}\n{rng.choice(TAILS)}\n",
    lambda text, rng: f"{text}\n{rng.choice(TAILS)}\n", lambda text, rng: text.replace(*rng.choice(PARTS)),
    lambda text, rng: text.replace(rng.choice(text.split() or [""]), rng.choice(TEXTS)),
]  # fmt: skip


def mutated_text(text: str, rng: random.Random) -> bytes:
    """One or two changes of the text, and sometimes one of its bytes."""
    for _ in range(rng.choice([1, 1, 2])):
        text = rng.choice(TEXT_CHANGES)(text, rng)
    data = text.encode(errors="surrogatepass")
    return mutated_bytes(data, rng) if rng.random() < 0.15 else data


# ---- bytes


def _flipped(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 1, 4, 32])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwritten(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    piece = rng.choice([b"\xff" * 4, b"\0" * 8, b"\xff" * 8, b"\x80", rng.randbytes(16), b"\x7f\xff\xff\xff"])
    data[at : at + len(piece)] = piece


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _holed(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice([1, 2, 8, 100])]


def _padded(data: bytearray, rng: random.Random) -> None:
    at = rng.choice([0, len(data), rng.randrange(len(data) + 1)])
    data[at:at] = rng.choice([b"\0", b"\xff\xfe", b"PK\x03\x04", b"\x1f\x8b", b"\n", rng.randbytes(50)])


def _repeated(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = data[at : at + rng.choice([1, 16, 512])]


BYTE_CHANGES = (_flipped, _flipped, _flipped, _overwritten, _overwritten, _cut, _holed, _padded, _repeated)


def mutated_bytes(data: bytes, rng: random.Random) -> bytes:
    """One or two changes."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2])):
        if changed:
            rng.choice(BYTE_CHANGES)(changed, rng)
    return bytes(changed)
