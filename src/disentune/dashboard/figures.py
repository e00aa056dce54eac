"""The figures of the report, drawn on demand from the rows as they are now."""

import hashlib
import json
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from pydantic import ValidationError

from disentune.dashboard.desk import Followed
from disentune.dashboard.shelf import Unknown
from disentune.errors import ConfigError, DisentuneError, unknown
from disentune.report import canvas
from disentune.report.kinds import KINDS
from disentune.report.page import Drawing, drawings
from disentune.report.places import in_words
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import Results, objective_or_default
from disentune.spec.figures import FIGURES, keys_of

KEPT = 40
"""Number of drawings to keep, so that going back to one costs nothing."""
LONGEST_SPEC = 2000
DARK = dict(
    zip(
        (canvas.INK, canvas.GREY, canvas.FAINT, *canvas.PALETTE),
        ("#e4e6ea", "#a4a9b2", "#363a42", "#4aa8e8", "#ff8a3d", "#2ec99b", "#e39ac4", "#f5b82e", "#8ccdf5", "#c48a7d"),
        strict=True,
    )
)
"""The colours of the report's dark theme."""
_drawing_lock = Lock()
"""Held while drawing, because Matplotlib's settings belong to the whole process."""


@dataclass
class Album:
    """The newest drawings by their key."""

    drawn: OrderedDict[str, Drawing]
    lock: Lock

    def get(self, key: str) -> Drawing:
        with self.lock:
            if key not in self.drawn:
                raise Unknown("this figure is no longer available; draw it again")
            return self.drawn[key]

    def keep(self, key: str, drawing: Drawing) -> None:
        with self.lock:
            self.drawn[key] = drawing
            while len(self.drawn) > KEPT:
                self.drawn.popitem(last=False)


def album() -> Album:
    return Album(OrderedDict(), Lock())


# ---- which figures there are


def offered(followed: Followed) -> dict[str, Any]:
    """The figures that the sweep names or that suit the run, every other kind, and the words to choose from."""
    scores = _scores(followed.loaded())
    specs = [_plain(spec) for spec in _specs(scores)]
    suited = {spec["name"] for spec in specs}
    others = [{"name": name} for name in KINDS if name not in suited]
    return {
        "figures": [{"spec": spec, "title": _title(spec), "suits": True} for spec in specs]
        + [{"spec": spec, "title": _title(spec), "suits": False} for spec in others],
        "fields": {name: sorted(set(kind.model_fields) - {"name", "title", "only"}) for name, kind in FIGURES.items()},
        "metrics": _named(scores.metrics),
        "keys": _named(["arm", *scores.varying]),
    }


def _named(keys: list[str]) -> list[dict[str, str]]:
    return [{"key": key, "title": title} for key, title in zip(keys, in_words(keys), strict=True)]


def _specs(scores: RunScores) -> list[Any]:
    asked = scores.results.run.sweep().settings.figures
    return asked if asked is not None else [spec for kind in KINDS.values() for spec in _suiting(kind, scores)]


def _suiting(kind: Any, scores: RunScores) -> list[Any]:
    try:
        found: list[Any] = kind.choose(scores)
    except Exception:  # one kind's mistake must not cost the others; drawing it says what is wrong
        return []
    return found


def _plain(spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"name": spec.name, **spec.model_dump(exclude_none=True, exclude_defaults=True)}
    return found


def _title(spec: dict[str, Any]) -> str:
    kind = canvas.words(spec["name"]).capitalize()
    named = [canvas.words(key) for key in keys_of(FIGURES[spec["name"]].model_validate(spec))]
    detail = spec.get("title") or spec.get("analysis") or " × ".join(named)
    return f"{kind}: {canvas.words(str(detail))}" if detail else kind


# ---- drawing


def drawn(book: Album, followed: Followed, text: str, ids: list[str]) -> dict[str, Any]:
    """Draws a figure of the rows of now, or of these trials only; `key` names it in the album."""
    spec = parsed(text)
    version = followed.feed.version
    content = json.dumps([followed.name, version, text, sorted(ids)])
    key = hashlib.sha256(content.encode()).hexdigest()[:24]
    if key not in book.drawn:
        book.keep(key, _drawing(followed.loaded(), spec, ids))
    found = book.get(key)
    return {"key": key, "title": found.title, "question": found.question, "caption": found.caption,
            "reason": found.reason, "wide": found.wide, "version": version}  # fmt: skip


def parsed(text: str) -> Any:
    """A figure as a sweep file names it. ConfigError for anything else."""
    try:
        tree = json.loads(text[:LONGEST_SPEC])
        kind = FIGURES.get(tree.get("name"))
        if kind is None:
            raise ConfigError(unknown("figure", str(tree.get("name")), FIGURES))
        return kind.model_validate(tree)
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(f"figure: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise ConfigError("figure: must be a JSON object with a name") from None


def _drawing(results: Results, spec: Any, ids: list[str]) -> Drawing:
    if ids:
        chosen = set(ids)
        results = replace(results, records=tuple(one for one in results.records if one.trial_id in chosen))
    with _drawing_lock:
        try:
            return drawings(_scores(results), [spec])[0]
        except (NothingToDraw, DisentuneError) as error:
            return Drawing(spec.name, "", canvas.words(spec.name), reason=str(error))


def _scores(results: Results) -> RunScores:
    return RunScores(results, objective_or_default(results))


def svg(drawing: Drawing, dark: bool) -> bytes:
    """The drawing in the colours of a theme."""
    text = drawing.svg
    for light, other in DARK.items() if dark else ():
        text = re.sub(light, other, text, flags=re.IGNORECASE)
    return text.encode()
