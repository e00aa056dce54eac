"""Errors shown to users, exit codes of commands, and the shared message for unknown names."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches

DONE, SOME_FAILED, WRONG_INPUT, CRASHED, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 70, 75, 130
"""Exit codes. After CRASHED (a bug) or UNAVAILABLE (an outage), running the same command again may succeed."""


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake in the user's input: its location, and what must hold instead."""

    where: str
    text: str


class DisentuneError(Exception):
    """An error that the user can fix; the command line prints it without a traceback."""


class ConfigError(DisentuneError):
    """Files or arguments that cannot run, with every problem found in them."""

    def __init__(self, subject: str, problems: Iterable[Problem] = ()):
        self.subject = subject
        distinct = {replace(problem, text=without_keys(problem.text)) for problem in problems}
        self.problems = sorted(distinct, key=_by_file_and_line)
        super().__init__(self._text())

    def _text(self) -> str:
        if not self.problems:
            return self.subject
        width = max(len(problem.where) for problem in self.problems)
        lines = [f"  {problem.where:<{width}}  {problem.text}" for problem in self.problems]
        return "\n".join([f"{self.subject}:", *lines])


@contextmanager
def collected(problems: list[Problem], where: str) -> Iterator[None]:
    """Adds the problems of a ConfigError to a list instead of raising it. `where` is the location of an error that has
    only a subject."""
    try:
        yield
    except ConfigError as error:
        problems += error.problems or [Problem(where, error.subject.removeprefix(f"{where}: "))]


def _by_file_and_line(problem: Problem) -> tuple[str, int, str]:
    return *file_and_line(problem.where), problem.text


SHORTEST_KEY = 20
"""Characters, more than a trial's id has."""
_WORD = re.compile(rf"[A-Za-z0-9_+=-]{{{SHORTEST_KEY},}}")
_TURN = re.compile("[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")


def without_keys(text: str) -> str:
    """The text with everything that looks like an API key cut to its first characters, because a rejected value may be
    a key that was put in the wrong place."""
    return _WORD.sub(lambda found: f"{found[0][:4]}***" if _looks_random(found[0]) else found[0], text)


def _looks_random(word: str) -> bool:
    """Whether a word has a long run of mixed letters and digits; names that people choose have `_` or `-` in
    between."""
    pieces = re.split("[_+=-]", word)
    return any(len(piece) >= SHORTEST_KEY and len(_TURN.findall(piece)) >= 3 for piece in pieces)


def file_and_line(where: str) -> tuple[str, int]:
    """The parts of `sweeps/x.yaml:7`; line 0 where there is none."""
    found = re.fullmatch(r"(.*):([0-9]{1,9})", where, re.DOTALL)
    return (found[1], int(found[2])) if found else (where, 0)


class Unavailable(ConfigError):
    """A service that the command needs does not answer; the same command may succeed later."""


class DataError(DisentuneError):
    """Data that is missing, incomplete or not what it claims to be."""


class TrialError(DisentuneError):
    """A trial that cannot continue, for a reason in its own folder or config."""


def first_line(error: BaseException | str) -> str:
    """The first line of an error's text, or the name of its class if there is no text."""
    kind = "" if isinstance(error, str) else type(error).__name__
    return next((line.strip() for line in str(error).splitlines() if line.strip()), kind)


SYNONYMS = {
    **dict.fromkeys(("lr", "step_size"), "learning_rate"),
    **dict.fromkeys(("epochs", "iterations", "iters", "max_steps", "n_steps", "num_steps"), "steps"),
    **dict.fromkeys(("bs", "batch", "batchsize"), "batch_size"),
    **dict.fromkeys(("latent_dim", "latent_dims", "latent_size", "z_dim", "z_size", "nz", "n_latents"), "latents"),
    **dict.fromkeys(("kl_weight", "kld_weight", "kl_beta"), "beta"),
    **dict.fromkeys(("hidden", "hidden_dim", "hidden_size", "hidden_units"), "width"),
    **dict.fromkeys(("layers", "n_layers", "num_layers"), "depth"),
    **dict.fromkeys(("loss", "reconstruction", "recon_loss", "reconstruction_loss"), "recon"),
    **dict.fromkeys(("data", "data_set", "dataset_name"), "dataset"),
    **dict.fromkeys(("method", "vae", "algorithm"), "framework"),
    **dict.fromkeys(("eval_every", "eval_interval", "evaluate_every"), "every"),
    **dict.fromkeys(("gpus", "num_gpus"), "gpu"),
    **dict.fromkeys(("cpus", "num_cpus"), "cpu"),
    **dict.fromkeys(("value", "values", "options"), "grid"),
}
"""Names that other tools use for our keys."""


DID_YOU_MEAN = " Did you mean"


def counted_trials(count: int) -> str:
    """'1 trial', '2 trials'."""
    return f"{count:,} trial{'' if count == 1 else 's'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' when something known is close, else nothing.

    `known` may hold dotted keys: `beta` and `kl_weight` find `framework.beta`, and `training.lr` finds
    `training.learning_rate`.
    """
    known = list(known)
    same = _same_key(name, known)
    if "." in name and len(same) > 1:
        same = get_close_matches(name, same, n=1, cutoff=0)
    if len(same) > MOST_MEANT:
        same = []
        known = known if "." in name else []
    near = same or get_close_matches(name, known, n=1, cutoff=0.6) or _misspelt(name, known)
    longer = sorted((one for one in known if one.startswith(f"{name}_")), key=len)[:1]  # dci, of dci_disentanglement
    listed = "' or '".join(near or longer)
    return f"{DID_YOU_MEAN} '{listed}'?" if listed else ""


MOST_MEANT = 3
"""Maximum number of keys with the same name to list. If there are more, only the closest to a dotted key is shown."""


def _same_key(name: str, known: Iterable[str]) -> list[str]:
    """Keys that end in this name or a synonym of it; only those of the same section if there are any."""
    section, _, last = name.rpartition(".")
    meant = (SYNONYMS.get(last.lower()), last)
    found = [one for one in known if one.rpartition(".")[2] in meant and one != name]
    return [one for one in found if one.rpartition(".")[0] == section] or found


def _misspelt(name: str, known: list[str]) -> list[str]:
    """The one key whose last part is close to a name without a section: `spacin` finds `dataset.spacing`."""
    last = (
        get_close_matches(name, {one.rpartition(".")[2] for one in known}, n=1, cutoff=0.8) if "." not in name else []
    )
    found = [one for one in known if one.rpartition(".")[2] in last]
    return found if len(found) == 1 else []


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that is in no catalogue."""
    names = sorted(known)
    return f"unknown {kind} '{name}'.{did_you_mean(name, names)} Known: {', '.join(names)}"
