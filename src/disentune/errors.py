"""The errors that users meet, the exit codes of commands, and the one way to word an unknown name."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches

DONE, SOME_FAILED, WRONG_INPUT, CRASHED, UNAVAILABLE, INTERRUPTED = 0, 1, 2, 70, 75, 130
"""Exit codes. After the fourth (a bug) and the fifth (an outage) the same command may succeed."""


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake of the user: where it stands, and what must hold."""

    where: str
    text: str


class DisentuneError(Exception):
    """Anything the user can mend; the command line prints it without a traceback."""


class ConfigError(DisentuneError):
    """Files or arguments that cannot run, with every problem found in them."""

    def __init__(self, subject: str, problems: Iterable[Problem] = ()):
        self.subject = subject
        told = {replace(problem, text=without_keys(problem.text)) for problem in problems}
        self.problems = sorted(told, key=_by_file_and_line)
        super().__init__(self._text())

    def _text(self) -> str:
        if not self.problems:
            return self.subject
        width = max(len(problem.where) for problem in self.problems)
        lines = [f"  {problem.where:<{width}}  {problem.text}" for problem in self.problems]
        return "\n".join([f"{self.subject}:", *lines])


def _by_file_and_line(problem: Problem) -> tuple[str, int, str]:
    return *file_and_line(problem.where), problem.text


SHORTEST_KEY = 20
"""Longer than a trial's id."""
_WORD = re.compile(rf"[A-Za-z0-9_+=-]{{{SHORTEST_KEY},}}")
_TURN = re.compile("[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")


def without_keys(text: str) -> str:
    """What is refused may be a key that costs money, in the wrong place: of what looks like one a bit is repeated."""
    return _WORD.sub(lambda found: f"{found[0][:4]}***" if _looks_random(found[0]) else found[0], text)


def _looks_random(word: str) -> bool:
    """Letters and digits take turns in it without a break; in names of people's making `_` or `-` stands between."""
    pieces = re.split("[_+=-]", word)
    return any(len(piece) >= SHORTEST_KEY and len(_TURN.findall(piece)) >= 3 for piece in pieces)


def file_and_line(where: str) -> tuple[str, int]:
    """`sweeps/x.yaml:7` apart; line 0 of what names none."""
    found = re.fullmatch(r"(.*):([0-9]{1,9})", where, re.DOTALL)
    return (found[1], int(found[2])) if found else (where, 0)


class Unavailable(ConfigError):
    """What a command needs does not answer now; the same command may succeed later."""


class DataError(DisentuneError):
    """Data that is missing, incomplete or not what it claims to be."""


class TrialError(DisentuneError):
    """A trial that cannot go on, for a reason in its own folder or config."""


def first_line(error: BaseException | str) -> str:
    """Of what an error says; its kind where it says nothing."""
    kind = "" if isinstance(error, str) else type(error).__name__
    return next((line.strip() for line in str(error).splitlines() if line.strip()), kind)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' when something known is close, else nothing."""
    known = list(known)
    longer = sorted((one for one in known if one.startswith(f"{name}_")), key=len)  # dci, of dci_disentanglement
    near = get_close_matches(name, known, n=1, cutoff=0.6) or longer
    return f" Did you mean '{near[0]}'?" if near else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The one wording for a name that no catalogue has."""
    names = sorted(known)
    return f"unknown {kind} '{name}'.{did_you_mean(name, names)} Known: {', '.join(names)}"
