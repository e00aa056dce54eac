"""Sweep and search-space files: layers of dotted keys, each with the line it came from."""

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, model_validator

from disentune.errors import ConfigError, Problem, collected, did_you_mean, unknown
from disentune.files import documents
from disentune.files.documents import Document
from disentune.files.storage import Place
from disentune.parameters import Mistake, validated, worded
from disentune.plugin import Frozen, Whole
from disentune.spec import needs
from disentune.spec.config import SECTIONS, nested, own_plugins
from disentune.spec.figures import FIGURES
from disentune.spec.selection import built_in_keys
from disentune.spec.settings import SCHEDULERS, SEARCHES, Settings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
SPACE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(/[A-Za-z0-9][A-Za-z0-9_-]*)*")
OPTION = re.compile("[A-Za-z_]{1,24}")
"""Unknown keys that people often write under `wandb:`; any other unknown key there may be an API key."""
SWEEP_KEYS = ("name", "question", "trial", "arms", "seeds", *Settings.model_fields, "needs")
NULL_SETTINGS = [key for key, field in Settings.model_fields.items() if field.default is None]
"""Keys that may be left empty, which counts as not given."""
MOST_SEEDS = 100_000
LARGEST_INT = 2**53
"""Up to this size, whole numbers are exact as floats, which searchers use."""


class Domain(Frozen):
    """The domain of one key. Exactly one kind is given; the values of a grid may be of any type."""

    grid: list[Any] | None = Field(None, min_length=1, description="every value, crossed with all other grids")
    choice: list[Any] | None = Field(
        None, min_length=1, description="one of these values; a grid search visits them all"
    )
    uniform: list[float] | None = Field(None, min_length=2, max_length=2, description="[low, high]")
    log_uniform: list[float] | None = Field(
        None, min_length=2, max_length=2, description="[low, high], both above 0; uniform in the logarithm"
    )
    int: list[Whole] | None = Field(None, min_length=2, max_length=2, description="whole numbers, [low, high]")
    normal: list[float] | None = Field(None, min_length=2, max_length=2, description="[mean, standard deviation]")

    @model_validator(mode="after")
    def _makes_sense(self) -> "Domain":
        given = [kind for kind in DOMAINS if getattr(self, kind) is not None]
        if len(given) != 1:
            raise ValueError(f"must have exactly one of {', '.join(DOMAINS)}, got {', '.join(given) or 'none'}")
        if self.kind in ("grid", "choice"):
            if len({repr(value) for value in self.values}) < len(self.values):
                raise ValueError(f"has a value twice: {self.values}")
        elif self.kind == "normal":
            if self.values[1] <= 0:
                raise ValueError(f"must be [mean, standard deviation > 0], got {self.values}")
        else:
            self._check_range(*self.values)
        return self

    def _check_range(self, low: float, high: float) -> None:
        if low > high:
            raise ValueError(f"must go from low to high, got {self.values}")
        if self.kind == "log_uniform" and low <= 0:
            raise ValueError(f"must be above 0, got {self.values}")
        if self.kind == "int" and max(-low, high) > LARGEST_INT:
            raise ValueError(f"must be between -{LARGEST_INT} and {LARGEST_INT}, got {self.values}")
        if high - low == math.inf:
            raise ValueError(f"is too wide for floating-point numbers, got {self.values}")

    @property
    def kind(self) -> str:
        return next(kind for kind in DOMAINS if getattr(self, kind) is not None)

    @property
    def values(self) -> list[Any]:
        found: list[Any] = getattr(self, self.kind)
        return found

    def tree(self) -> dict[str, Any]:
        return {self.kind: self.values}


DOMAINS = tuple(Domain.model_fields)


@dataclass(frozen=True)
class Entry:
    """The value or Domain of one dotted key, and the `file:line` that set it."""

    value: Any
    where: str


@dataclass(frozen=True)
class Layer:
    """Dotted keys of one mapping in one file. A mapping with a name or a schedule replaces everything that earlier
    layers set under its key; a dotted key (`recon.alpha`) changes only that key."""

    entries: Mapping[str, Entry] = field(default_factory=dict)
    replaces: frozenset[str] = frozenset()

    def over(self, lower: "Layer") -> "Layer":
        kept = {key: entry for key, entry in lower.entries.items() if not self._hides(key)}
        return Layer({**kept, **self.entries}, lower.replaces | self.replaces)

    def _hides(self, key: str) -> bool:
        """A single value replaces an earlier mapping, and a mapping replaces an earlier single value."""
        above = {key.rsplit(".", n)[0] for n in range(1, key.count(".") + 1)}
        below = any(own.startswith(f"{key}.") for own in self.entries)
        return below or bool(above & self.entries.keys()) or bool((above | {key}) & self.replaces)


@dataclass(frozen=True)
class SweepFile:
    """A study: arms of dotted keys (all layers merged), seeds, and how to run them."""

    name: str
    question: str
    arms: dict[str, dict[str, Entry]]
    seeds: tuple[int, ...]
    settings: Settings
    file: str
    where: dict[str, str]
    """`file:line` of each top-level key, of each arm as `arms.<name>`, and of each needed sweep as `needs.<key>`."""
    needs: Mapping[str, "SweepFile"] = field(default_factory=dict)
    """Sweeps that must be finished first, by the key under which this one names them."""

    def own_plugins(self) -> list[str]:
        """The import paths by which its trials may name plug-ins."""
        entries = [pair for arm in self.arms.values() for pair in arm.items()]
        values = ((key, e.value.values if isinstance(e.value, Domain) else [e.value]) for key, e in entries)
        trees = (nested({key: value}) for key, some in values for value in some if ":" in str(value))
        return sorted({name for tree in trees for name in own_plugins(tree)})

    def resolved(self) -> dict[str, Any]:
        """The same sweep as plain values without references to other files, as stored in a run folder."""
        arms = {
            name: {key: e.value.tree() if isinstance(e.value, Domain) else e.value for key, e in entries.items()}
            for name, entries in self.arms.items()
        }
        settings = self.settings.model_dump(exclude_defaults=True)
        for key in ("search", "scheduler"):
            if key in settings:
                settings[key] = {"name": getattr(self.settings, key).name, **settings[key]}
        if self.settings.figures is not None:
            figures = self.settings.figures
            settings["figures"] = [{"name": one.name, **one.model_dump(exclude_defaults=True)} for one in figures]
        count = len(self.seeds)
        seeds = count if self.seeds == tuple(range(count)) else list(self.seeds)
        needed = {"needs": {key: sweep.resolved() for key, sweep in self.needs.items()}} if self.needs else {}
        return {"name": self.name, "question": self.question, **needed, **settings, "seeds": seeds, "arms": arms}


class _Builder:
    """Reads one sweep; collects problems instead of stopping at the first."""

    def __init__(self, document: Document, above: Sequence[Path] = ()):
        self.document = document
        self.above = above
        """The files that need this one, the outermost first."""
        self.problems: list[Problem] = []
        self.unread: set[str] = set()

    def complain(self, where: str, text: str) -> None:
        self.problems.append(Problem(where, text))

    def layer(self, document: Document, tree: Any, path: documents.Path_) -> Layer:
        """The dotted keys below `path`; nested mappings and dotted spellings mean the same."""
        if not isinstance(tree, Mapping):
            self.complain(document.where(path), "must be a mapping of dotted keys")
            return Layer()
        entries: dict[str, Entry] = {}
        replaces: set[str] = set()
        for key, value in tree.items():
            section = key.split(".")[0]
            where = document.where((*path, key))
            if section not in SECTIONS:
                self._unknown_section(where, key, section)
                continue
            self._flatten(document, key, value, (*path, key), entries, replaces)
        return Layer(entries, frozenset(replaces))

    def _unknown_section(self, where: str, key: str, section: str) -> None:
        if section == "seed":
            self.complain(where, "seed: cannot be set here; the sweep's `seeds` gives every point its seeds")
        else:
            near = did_you_mean(key, [*SECTIONS, *_trial_keys()])
            self.complain(where, f"{key}: unknown key.{near} Known: {', '.join(SECTIONS)}")

    def _flatten(
        self,
        document: Document,
        key: str,
        value: Any,
        path: documents.Path_,
        entries: dict[str, Entry],
        replaces: set[str],
    ) -> None:
        where = document.where(path)
        if key in entries and path not in document.elsewhere:
            self.complain(where, f"{key}: occurs twice, nested and with dots; keep one")
        if not isinstance(value, Mapping):
            entries[key] = Entry(value, where)
        elif any(kind in value for kind in DOMAINS):
            mistakes: list[Mistake] = []
            domain = validated(Domain, value, key, mistakes)
            self._report(mistakes, where)
            if domain is not None:
                entries[key] = Entry(domain, where)
        else:
            if "name" in value or "schedule" in value:
                replaces.add(key)
            for part, below in value.items():
                self._flatten(document, f"{key}.{part}", below, (*path, part), entries, replaces)

    def _report(self, mistakes: Iterable[Mistake], where: str) -> None:
        for mistake in mistakes:
            self.complain(where, worded(mistake))

    def arm(self, name: str, tree: Any, lower: Layer) -> Layer:
        before = len(self.problems)
        layer = self._arm(name, tree, lower)
        if len(self.problems) > before:
            self.unread.add(f"arms.{name}")
        return layer

    def _arm(self, name: str, tree: Any, lower: Layer) -> Layer:
        path = ("arms", name)
        if not NAME.fullmatch(name):
            self.complain(self.document.where(path), f"arms.{name}: {_name_rule(name)}")
        if tree is None:
            return lower
        if not isinstance(tree, Mapping):
            self.complain(self.document.where(path), f"arms.{name}: must be a mapping of dotted keys")
            return lower
        for space in self._spaces(tree.get("search_space", []), self.document.where((*path, "search_space"))):
            lower = space.over(lower)
        inline = {key: value for key, value in tree.items() if key != "search_space"}
        return self.layer(self.document, inline, path).over(lower)

    def _spaces(self, names: Any, where: str) -> list[Layer]:
        """The search spaces of an arm. Two that set the same key are refused: it is unclear which one is meant."""
        names = names if isinstance(names, list) else [names]
        layers = [self.space(name, where) for name in names]
        setters: dict[str, Any] = {}
        for name, layer in zip(names, layers, strict=True):
            for key in layer.entries.keys() & setters.keys():
                self.complain(where, f"search_space: '{setters[key]}' and '{name}' both set {key}; keep one")
            setters |= dict.fromkeys(layer.entries, name)
        return layers

    def space(self, name: Any, where: str) -> Layer:
        """A search space by its name, looked up beside the sweep file or one of the folders above it."""
        if not isinstance(name, str) or not SPACE_NAME.fullmatch(name):
            self.complain(where, f"search_space: must be the name of a file in search_spaces/, got {name!r}")
            return Layer()
        files = self.space_files
        if name not in files:
            known = list(files)
            listed = (
                f" Known: {', '.join(sorted(set(known)))}"
                if known
                else " There is no search_spaces/ folder beside the sweep or above it"
            )
            self.complain(where, f"search_space: no search_spaces/{name}.yaml.{did_you_mean(name, known)}{listed}")
            return Layer()
        if not _is_inside(files[name], files[name].parents[name.count("/")]):
            self.complain(where, f"search_space: {_shown(files[name])} is a link out of its folder; put the file there")
            return Layer()
        try:
            document = documents.read(_shown(files[name]))
        except ConfigError as error:
            self.problems += error.problems or [Problem(where, str(error))]
            return Layer()
        return self.layer(document, document.value, ())

    @cached_property
    def space_files(self) -> dict[str, Path]:
        """Every search space by its name; if two have the same name, the one in the closer folder."""
        folders = search_space_folders(Path(self.document.file))
        return {_space_name(file, folder): file for folder in reversed(folders) for file in folder.rglob("*.yaml")}

    def needs(self, tree: Any) -> dict[str, SweepFile]:
        """The sweeps that must be finished first; what cannot be read is reported and left out."""
        if not isinstance(tree, Mapping):
            text = f"needs: must be a mapping such as {{donors: sweeps/donors.yaml}}, got {tree!r}"
            self.complain(self.document.where(("needs",)), text)
            self.unread.add("needs")
            return {}
        read = {key: self._needed(key, value) for key, value in tree.items()}
        if None in read.values():
            self.unread.add("needs")
        return {key: sweep for key, sweep in read.items() if sweep is not None}

    def _needed(self, key: str, value: Any) -> SweepFile | None:
        where = self.document.where(("needs", key))
        if not NAME.fullmatch(key):
            self.complain(where, f"needs.{key}: {_name_rule(key)}")
            return None
        if isinstance(value, Mapping):
            below = self.document.part(("needs", key))
            return self._read_needed(lambda: _build(below, _NO_OVERRIDES, key, self.above), where)
        if not isinstance(value, str) or not value.endswith(needs.SUFFIXES):
            self.complain(where, f"needs.{key}: {needs.RULE}, got {value!r}")
            return None
        path = needs.found(value, Path(self.document.file))
        refusal = self._refused_file(value, path)
        if path is None or refusal:
            self.complain(where, f"needs.{key}: {refusal}")
            return None
        return self._read_needed(lambda: parse_sweep(_shown(path), (), self.above), where)

    def _refused_file(self, text: str, path: Path | None) -> str:
        """Why the file of a needed sweep cannot be taken; empty when it can."""
        if path is None:
            folder = _shown(Path(self.document.file).resolve().parent)
            return f"there is no file {text}, neither from {folder} or a folder above it nor from {Path.cwd()}"
        if circle := needs.cycle(path, self.above):
            return f"the sweeps need one another in a circle: {circle}; remove one of these needs"
        return f"more than {needs.DEEPEST} sweeps need one another" if len(self.above) > needs.DEEPEST else ""

    def _read_needed(self, read: "Callable[[], Parsed]", where: str) -> SweepFile | None:
        """Its problems become ours."""
        try:
            parsed = read()
        except ConfigError as error:
            self.problems += error.problems or [Problem(where, str(error))]
            return None
        self.problems += parsed.problems
        return None if parsed.problems else parsed.sweep

    def seeds(self, value: Any) -> tuple[int, ...]:
        where = self.document.where(("seeds",))
        numbers = list(range(value)) if _is_count(value) and value <= MOST_SEEDS else value
        if not isinstance(numbers, list) or not numbers or not all(_is_seed(seed) for seed in numbers):
            wanted = f"a number of seeds (1 to {MOST_SEEDS}) or a list of whole numbers >= 0"
            self.complain(where, f"seeds: must be {wanted}, got {value!r}")
            return (0,)
        if len(set(numbers)) < len(numbers):
            self.complain(where, f"seeds: has a seed twice: {numbers}")
        return tuple(numbers)

    def settings(self, tree: Mapping[str, Any]) -> Settings:
        given = {key: value for key, value in tree.items() if key in Settings.model_fields}
        given = {key: value for key, value in given.items() if value is not None or key not in NULL_SETTINGS}
        asked = set(given)
        if isinstance(given.get("pictures"), str):
            given["pictures"] = {"when": given["pictures"]}
        if isinstance(metric := given.get("objective"), str):
            text = f"objective: must name a metric and a mode; write objective: {{metric: {metric}, mode: max}}, or min"
            self.complain(self.document.where(("objective",)), text)
            del given["objective"]
        for key, kinds in (("search", SEARCHES), ("scheduler", SCHEDULERS)):
            given = self._named_setting(given, key, kinds)
        figures = self._named_figures(given.pop("figures", None))
        mistakes: list[Mistake] = []
        for key, value in given.items():
            validated(_settings_class(key, value), value, key, mistakes)
        for number, figure in figures.items():
            validated(FIGURES[figure["name"]], figure, f"figures.{number}", mistakes)
        for mistake in mistakes:
            self.complain(self.document.where(_path(mistake.key)), worded(_without_secret(mistake)))
        given |= {"figures": list(figures.values())} if "figures" in asked else {}
        wrong = {mistake.key.split(".")[0] for mistake in mistakes}
        wrong |= {"figures"} if figures and len(figures) < len(tree["figures"]) else set()
        self.unread |= wrong | (asked - given.keys())
        return Settings.model_validate({key: value for key, value in given.items() if key not in wrong})

    def _named_figures(self, figures: Any) -> dict[int, Any]:
        """The figures by position; `figures: [violins]` is short for `figures: [{name: violins}]`. Reports invalid
        entries."""
        if figures is not None and not isinstance(figures, list):
            text = f"figures: must be a list such as [violins, curves], got {figures!r}"
            self.complain(self.document.where(("figures",)), text)
        found: dict[int, Any] = {}
        for number, figure in enumerate(figures if isinstance(figures, list) else ()):
            key = f"figures.{number}"
            named = self._named_setting({key: figure}, key, FIGURES)
            found |= {number: named[key]} if key in named else {}
        return found

    def _named_setting(self, given: dict[str, Any], key: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
        """`search: random` is short for `search: {name: random}`; an unknown name is reported here."""
        if key not in given:
            return given
        value = {"name": given[key]} if isinstance(given[key], str) else given[key]
        name = value.get("name") if isinstance(value, Mapping) else value
        if isinstance(name, str) and name in kinds:
            return {**given, key: value}
        near = did_you_mean(str(name), kinds)
        text = f"{key}.name: must be one of {', '.join(kinds)}, got {name!r}{near and '.'}{near}"
        self.complain(self.document.where(_path(key)), text)
        return {kept: setting for kept, setting in given.items() if kept != key}


def _path(key: str) -> documents.Path_:
    """The `file:line` of a dotted key of a setting; items of a list are numbered."""
    return tuple(int(part) if re.fullmatch("[0-9]{1,9}", part) else part for part in key.split("."))


def _without_secret(mistake: Mistake) -> Mistake:
    """People may put their API key under `wandb:`; it must never be printed on a screen or in a log."""
    section, _, key = mistake.key.partition(".")
    if section != "wandb":
        return mistake
    hidden = mistake._replace(shows_value=False)
    if "unknown key" not in mistake.text:
        return hidden
    if not OPTION.fullmatch(key):
        hidden = hidden._replace(key=section)
    if "key" in key.lower():
        text = "an API key is never read from a file; remove it here, and set WANDB_API_KEY or run: wandb login"
        hidden = hidden._replace(text=text)
    return hidden


def _settings_class(key: str, value: Any) -> Any:
    if key == "search":
        return SEARCHES[value["name"]]
    if key == "scheduler":
        return SCHEDULERS[value["name"]]
    annotation = Settings.model_fields[key].annotation
    options = getattr(annotation, "__args__", (annotation,))
    return next(option for option in options if option is not type(None))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_seed(value: Any) -> bool:
    return _is_count(value) and value < 2**63


def _space_name(file: Path, folder: Path) -> str:
    return file.relative_to(folder).with_suffix("").as_posix()


def _is_inside(file: Path, folder: Path) -> bool:
    """Whether a file is in its folder after links are resolved; search spaces may come from someone else's
    repository."""
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))


def _shown(path: Path) -> Path:
    """A path as the user would type it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _name_rule(name: Any) -> str:
    return f"a name has letters, digits, '_', '-' and '.', and starts with a letter or digit; got {name!r}"


def search_space_folders(file: Path) -> list[Path]:
    """Every `search_spaces/` from the file's own folder upwards, nearest first, then the working folder's."""
    folders = [parent / "search_spaces" for parent in file.resolve().parents]
    found = [folder for folder in [*folders, Path.cwd() / "search_spaces"] if folder.is_dir()]
    return list(dict.fromkeys(found))


def read_sweep(path: Place, overrides: Iterable[str] = ()) -> SweepFile:
    """A sweep from its file, with `key=value` overrides on top; every problem at once as a ConfigError."""
    parsed = parse_sweep(path, overrides)
    if parsed.problems:
        raise ConfigError(f"{parsed.sweep.file} cannot run", parsed.problems)
    return parsed.sweep


def read_figures(path: Place) -> list[Any]:
    """The `figures:` of a file, which may also be a whole sweep; every problem at once as a ConfigError."""
    document = documents.read(path)
    if not isinstance(document.value, Mapping) or document.value.get("figures") is None:
        raise ConfigError(f"{document.file}: must have the key `figures` with a list, such as [summary, heat_map]")
    builder = _Builder(document)
    found = builder.settings({"figures": document.value["figures"]}).figures
    if builder.problems:
        raise ConfigError(f"{document.file} names figures that cannot be drawn", builder.problems)
    return found or []


class Parsed(NamedTuple):
    """As much of a sweep as could be read, and the problems of the rest."""

    sweep: SweepFile
    problems: list[Problem]
    unread: frozenset[str]
    """Arms (`arms.<name>`) that were only partly read, and settings that were replaced by their defaults."""


def parse_sweep(path: Place, overrides: Iterable[str] = (), above: Sequence[Path] = ()) -> Parsed:
    """Raises ConfigError if the file is not a mapping. `above`: the files that need this one."""
    try:
        document = documents.read(path)
    except documents.Missing as error:
        raise ConfigError(f"{error}{_near(path)}") from None
    if not isinstance(document.value, Mapping):
        raise ConfigError(f"{document.file} must be a mapping with at least `trial` or `arms`")
    if document.value and all(str(key).split(".")[0] in SECTIONS for key in document.value):
        raise ConfigError(
            f"{document.file} is a search space, not a sweep: it has only keys of trials. In a sweep, put such keys "
            f"below `trial:` or into an arm; `search_space: {path.stem}` in an arm includes a file of search_spaces/"
        )
    given, wrong = dict[str, Any](), list[Problem]()
    for one in overrides:
        with collected(wrong, f"--set {one}"):
            given |= overrides_by_key([one])
    trial = {key: value for key, value in given.items() if key.split(".")[0] in SECTIONS}
    for key in [key for key in given if key not in trial]:
        with collected(wrong, f"--set {key}"):
            document = _changed(document, key, given[key])
    override = Document("--set", trial, elsewhere={(key,): f"--set {key}" for key in trial})
    return _build(document, override, path.stem, [*above, Path(str(path))], wrong)


def _near(path: Place) -> str:
    """'. Did you mean ...?' when a sweep below sweeps/ has this name or a similar one, else nothing."""
    known = {file.stem: file for file in sorted(Path("sweeps").rglob("*.yaml"), reverse=True)}
    names = get_close_matches(path.stem, known, n=1, cutoff=0.75)
    return f". Did you mean {known[names[0]]}?" if names else ""


_NO_OVERRIDES = Document("--set", {})
UNNAMED = "sweep"
"""The name of a sweep from values that give it none. Search spaces are looked up from the working folder."""


def parse_values(values: Mapping[str, Any]) -> Parsed:
    """A sweep from the keys of a sweep file as Python values; problems name the path of a key instead of a line."""
    return _build(documents.of_values(values, "the sweep"), _NO_OVERRIDES, UNNAMED)


def embedded_sweep(document: Document, path: tuple[str, ...]) -> SweepFile:
    """A sweep that another file has as a mapping; every problem at once as a ConfigError."""
    parsed = _build(document.part(path), _NO_OVERRIDES, path[-1])
    if parsed.problems:
        raise ConfigError(f"{document.file} cannot run", parsed.problems)
    return parsed.sweep


def _build(
    document: Document,
    overrides: Document,
    default_name: str,
    above: Sequence[Path] = (),
    wrong: Sequence[Problem] = (),
) -> Parsed:
    """`wrong`: the overrides that could not be read."""
    builder, tree = _Builder(document, above), document.value
    for key in tree:
        if key not in SWEEP_KEYS:
            text = f"{key}: unknown key.{did_you_mean(key, _keys_anywhere())} Known: {', '.join(SWEEP_KEYS)}"
            builder.complain(document.where((key,)), text)
    name, question = tree.get("name", default_name), tree.get("question", "")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        builder.complain(document.where(("name",)), f"name: {_name_rule(name)}")
    if not isinstance(question, str):
        builder.complain(document.where(("question",)), "question: must be a string")
    before = len(builder.problems)
    trial = builder.layer(document, {} if tree.get("trial") is None else tree["trial"], ("trial",))
    override = builder.layer(overrides, overrides.value, ())
    are_unread = bool(wrong) or len(builder.problems) > before
    arms = tree.get("arms", {"all": {}})
    if not isinstance(arms, Mapping) or not arms:
        builder.complain(document.where(("arms",)), "arms: must be a mapping of at least one arm")
        arms = {}
    layers = {str(arm): builder.arm(str(arm), arm_tree, trial) for arm, arm_tree in arms.items()}
    builder.unread |= {f"arms.{arm}" for arm in layers} if are_unread else set()
    needed = builder.needs({} if tree.get("needs") is None else tree["needs"])
    paths = [*((key,) for key in SWEEP_KEYS), *(("arms", arm) for arm in layers), *(("needs", key) for key in needed)]
    where = {".".join(path): document.where(path) for path in paths}
    if "arms" not in tree:
        where["arms.all"] = document.where(("trial",))
    sweep = SweepFile(
        name=name,
        question=question,
        arms={arm: dict(override.over(layer).entries) for arm, layer in layers.items()},
        seeds=builder.seeds(tree.get("seeds", 1)),
        settings=builder.settings(tree),
        file=document.file,
        where=where,
        needs=needed,
    )
    return Parsed(sweep, [*wrong, *builder.problems], frozenset(builder.unread))


def _trial_keys() -> list[str]:
    return sorted(key for key in built_in_keys() if "." in key)


def _keys_anywhere() -> list[str]:
    """The keys of a sweep, and keys that people put at its top level although they belong below another key."""
    trial = [f"trial.{key}" for key in (*SECTIONS, *_trial_keys())]
    settings = [f"{key}.{below}" for key, value in Settings() if value for below in type(value).model_fields]
    return [*SWEEP_KEYS, *trial, *settings]


def overrides_by_key(overrides: Iterable[str], example: str = "training.steps=100") -> dict[str, Any]:
    """`key=value` strings by key; the last one of each key counts. A trial's key overrides all layers."""
    given: dict[str, Any] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        key = key.strip().removeprefix("trial.")
        if not equals or not key:
            raise ConfigError(f"--set {override}: must be key=value, for example --set {example}")
        given[key] = documents.parse(text, f"--set {key}").value
    return given


def _changed(document: Document, key: str, value: Any) -> Document:
    """The sweep with one of its own keys changed: `seeds`, `search.points`, `arms.<name>.<trial key>`."""
    path = tuple(key.split("."))
    if path[0] == "needs" and len(path) > 2:
        text = f"changes the study only; edit the file of '{path[1]}', or name another: --set needs.{path[1]}=FILE"
        raise ConfigError(f"--set {key}: {text}")
    if path[0] == "arms" and len(path) > 1:
        known = document.value.get("arms")
        if not isinstance(known, Mapping) or path[1] not in known:
            raise ConfigError(f"--set {key}: {unknown('arm', path[1], known if isinstance(known, Mapping) else ())}")
        path = (*path[:2], ".".join(path[2:])) if path[2:] else path
    new = {
        path[:n]: f"--set {key}" for n in range(1, len(path) + 1) if n == len(path) or path[:n] not in document.lines
    }
    return replace(document, value=_placed(document.value, path, value), elsewhere=document.elsewhere | new)


def _placed(tree: Any, path: tuple[str, ...], value: Any) -> Any:
    """`tree` with `value` at `path`; `search: random` is short for `search: {name: random}` here too."""
    if not path:
        return value
    below = {"name": tree} if isinstance(tree, str) else tree if isinstance(tree, Mapping) else {}
    return {**below, path[0]: _placed(below.get(path[0]), path[1:], value)}
