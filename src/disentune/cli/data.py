"""disentune data: list, prepare, verify and export data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from disentune.cli.options import AsJson
from disentune.cli.terminal import err, out, print_json, progress_bar
from disentune.errors import ConfigError, DataError

if TYPE_CHECKING:
    from disentune.plugin import Dataset, Source

app = typer.Typer(
    name="data",
    help="Lists, prepares, verifies and exports data sets.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Root = Annotated[str | None, typer.Option(help="Folder of prepared data sets; default: DISENTUNE_DATA.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="A parameter of the data set: split=training. Can be repeated.")
]


def _use(given: str | None) -> None:
    from disentune.data.prepared.store import is_root_set, root, use_root

    if given == "":
        raise ConfigError("--root: must be a folder, but is empty")
    use_root(given, override=True)
    if is_root_set():
        root()  # raises if the root is wrong


# ---- list


@app.command("list")
def list_(root: Root = None, as_json: AsJson = False) -> None:
    """Lists every data set with its images, factors and state, then the other arrays that are prepared.

    Example: disentune data list
    """
    from disentune.data import DATASETS

    _use(root)
    listing = [_listed(dataset) for dataset in sorted(DATASETS, key=lambda dataset: dataset.name)]
    listing += _others()
    if as_json:
        print_json(listing)
        return
    table = Table(box=None, pad_edge=False)
    for title in ("name", "images", "shape", "factors", "state"):
        table.add_column(title, justify="right" if title == "images" else "left", overflow="fold")
    for one in listing:
        factors = ", ".join(map(str, one["factor_sizes"])) or ("unknown" if one["images"] else "")
        shape = " x ".join(map(str, one["shape"]))
        images = f"{one['images']:,}" if one["images"] else ""
        table.add_row(one["name"], images, shape, factors, escape(one["state"]))
    out.print(table)
    out.print("\nparameters of each: disentune list datasets", markup=False)


OWN_FILE = "made from your own file"


def _listed(dataset: Dataset) -> dict[str, Any]:
    """The data set with default parameters; one with required parameters is made from the user's own files."""
    if any(field.is_required() for field in dataset.params.model_fields.values()):
        unknown: dict[str, Any] = {"images": None, "shape": [], "factor_sizes": []}
        made = "made from trained models by a sweep" if "donors" in dataset.params.model_fields else OWN_FILE
        return {"name": dataset.name, **unknown, "state": made}
    params = dataset.params()
    sizes = dataset.factor_sizes(params)
    return {
        "name": dataset.name,
        "images": dataset.population(params),
        "shape": list(dataset.shape(params)),
        "factor_sizes": list(sizes),
        "state": _state(dataset.sources(params)),
    }


def _others() -> list[dict[str, Any]]:
    """Prepared arrays that no data set has with its usual parameters: of other parameters, your own files, or made by
    a sweep."""
    from disentune.data import DATASETS
    from disentune.data.prepared.store import is_root_set, prepared_sources

    if not is_root_set():
        return []
    plain = (one for one in DATASETS if not any(field.is_required() for field in one.params.model_fields.values()))
    usual = {source.key for dataset in plain for source in dataset.sources(dataset.params())}
    return [_described(key, source) for key, source in prepared_sources().items() if key not in usual]


def _described(key: str, source: Source | DataError) -> dict[str, Any]:
    if isinstance(source, DataError):
        return {"name": key, "images": None, "shape": [], "factor_sizes": [], "state": f"damaged: {source}"}
    try:
        dataset, params = _parameters(source)
        sizes = list(dataset.factor_sizes(params))
    except (ConfigError, DataError):  # an array that several data sets are made from
        sizes = []
    return {
        "name": key, "images": source.count, "shape": list(source.shape), "factor_sizes": sizes,
        "state": _state((source,)),
    }  # fmt: skip


def _parameters(source: Source) -> tuple[Dataset, Any]:
    """The data set that a prepared array is of, and its parameters: the array has them as options of a command."""
    import shlex

    from disentune.data import DATASETS
    from disentune.parameters import chosen
    from disentune.spec.sweepfile import overrides_by_key

    if source.name not in DATASETS.names():  # a list may not import what a folder names
        raise ConfigError(f"'{source.key}' is not a data set by itself; export the data set that is made from it")
    words = shlex.split(source.options)
    given = [word for flag, word in zip(words[::2], words[1::2], strict=True) if flag == "--set"]
    return chosen(DATASETS, source.name, overrides_by_key(given))


def _state(sources: tuple[Source, ...]) -> str:
    from disentune.cli.display import size
    from disentune.data.prepared.store import VARIABLE, about_of, command_of, is_checked, is_root_set

    if not sources:
        return "needs no file"
    if not is_root_set():
        return f"unknown: {VARIABLE} is not set"
    try:
        known = [about_of(source) for source in sources]
    except DataError as error:
        return f"damaged: {error}"
    missing = [command_of(source) for source, about in zip(sources, known, strict=True) if about is None]
    if missing:
        return f"not prepared: {'; '.join(missing)}"
    if not all(is_checked(source) for source in sources):
        return "changed since it was verified; run: disentune data verify"
    other = ", not the published contents" if any(about.published is False for about in known if about) else ""
    return f"prepared, {size(sum(about.file_bytes for about in known if about))}{other}"


# ---- prepare and verify


def _sources(name: str, sets: list[str]) -> tuple[Source, ...]:
    from disentune.data import DATASETS
    from disentune.data.manipulated import Params as Manipulated
    from disentune.data.manipulated import donors_unknown
    from disentune.parameters import chosen
    from disentune.spec.sweepfile import overrides_by_key

    dataset, params = chosen(DATASETS, name, overrides_by_key(sets, example="split=training"))
    if isinstance(params, Manipulated) and params.manipulator is None:
        raise DataError(donors_unknown(params))
    return dataset.sources(params)


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="The data set, as in a sweep: dsprites, shapes3d, ...")],
    given: Annotated[
        Path | None, typer.Option("--from", help="Use this file, or the files in this folder, instead of a download.")
    ] = None,
    set_: Sets = None,
    again: Annotated[bool, typer.Option("--again", help="Prepare it again even if it is already prepared.")] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Accept contents that differ from the published ones.")
    ] = False,
    root: Root = None,
) -> None:
    """Prepares a data set for trials: downloads its public files, or uses yours, and packs them into one array.

    A trial whose data set is missing does the same, once per node.

    \b
    Examples:
    disentune data prepare dsprites
    disentune data prepare shapes3d --from ~/Downloads/3dshapes.h5
    disentune data prepare smallnorb --set split=training --root /data
    """
    _use(root)
    sources = _sources(name, set_ or [])
    if not sources:
        out.print(f"'{name}' is drawn on the fly; there is nothing to prepare", markup=False)
        return
    given = given and given.expanduser()
    taken = {source.key: given if given and _takes(source, given, sources) else None for source in sources}
    if given and not any(taken.values()):
        names = [file.name for source in sources for file in source.files]
        raise ConfigError(f"--from {given}: '{name}' is made from {', '.join(names)}; give it one of these names")
    try:
        for source in sources:
            _prepare(source, taken[source.key], again, accept)
    except KeyboardInterrupt:
        err.print("interrupted; run the same command again to continue the download")
        raise typer.Exit(130) from None


def _takes(source: Source, given: Path, sources: tuple[Source, ...]) -> bool:
    """Whether the user's file or folder is for this source; with several sources, the file name decides."""
    if not given.exists():
        raise ConfigError(f"--from {given}: does not exist")
    names = [name for file in source.files for name in (file.name, *file.also)]
    return len(sources) == 1 or given.is_dir() or given.name in names


def _prepare(source: Source, given: Path | None, again: bool, accept: bool) -> None:
    from disentune.cli.display import size
    from disentune.data.prepared.preparing import prepare
    from disentune.data.prepared.store import about_of, folder_of, mapped

    there = not again and about_of(source) is not None
    with progress_bar() as say:
        about = prepare(source, given, again, accept, say)
        mapped(source, about, say)  # an existing array may have been altered
    what = "was already prepared" if there else "prepared"
    text = f"{what}: {about.count:,} images of {' x '.join(map(str, about.shape))}, {size(about.file_bytes)}"
    out.print(f"{source.key} {text} in {folder_of(source)}", markup=False)
    if there and given:
        out.print(f"  {given} was not read; use --again to prepare the array from it", markup=False)
    out.print(f"  contents sha256 {about.sha256}", markup=False)
    out.print(f"  mean {_numbers(about.mean)}   std {_numbers(about.std)}{_compared(about.published)}", markup=False)


def _compared(published: bool | None) -> str:
    if published is None:
        return "   (no published values to compare)"
    return "   (as published)" if published else "   (not as published)"


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.6f}" for value in values)


def _verified(source: Source | DataError) -> dict[str, Any]:
    from disentune.data.prepared.store import verify

    try:
        if isinstance(source, DataError):
            raise source
        with progress_bar() as say:
            return {"sound": True, "sha256": verify(source, say).sha256}
    except DataError as error:
        return {"sound": False, "reason": str(error)}


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="A data set; default: all prepared ones.")] = None,
    set_: Sets = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Reads prepared arrays completely and compares them with their hashes. Exit code 1 if one is damaged.

    Examples: disentune data verify; disentune data verify dsprites
    """
    from disentune.data.prepared import store

    _use(root)
    if name is None and set_:
        raise ConfigError(f"--set {set_[0]}: needs the name of a data set; add the name, or omit --set")
    named = {source.key: source for source in _sources(name, set_ or [])} if name else None
    sources = store.prepared_sources() if named is None else named
    outcomes = {key: {**_verified(source), "path": str(store.root() / key)} for key, source in sources.items()}
    if as_json:
        print_json(outcomes)
    elif not outcomes:
        out.print(
            f"no data set is prepared in {store.root()}"
            if name is None
            else f"'{name}' has no files: nothing to verify"
        )
    else:
        for key, outcome in outcomes.items():
            text = f"sound: {outcome['sha256']}" if outcome["sound"] else outcome["reason"]
            out.print(f"{key}  {text}", markup=False)
    raise typer.Exit(0 if all(outcome["sound"] for outcome in outcomes.values()) else 1)


# ---- export


@app.command()
def export(
    name: Annotated[str, typer.Argument(help="A data set, or a prepared array as `data list` names it.")],
    file: Annotated[Path, typer.Argument(help="The HDF5 file to write: NAME.h5.")],
    set_: Sets = None,
    root: Root = None,
) -> None:
    """Writes a data set as one HDF5 file: uint8 (n, h, w, c) in the order of its factors, the last one fastest.

    The data set `grid_file` reads the same images back; the section to put into a sweep is printed.

    \b
    Examples:
    disentune data export dsprites dsprites.h5
    disentune data export manipulated_0123456789abcdef changed.h5
    """
    from disentune.data.prepared.exporting import as_section
    from disentune.data.prepared.exporting import export as write

    _use(root)
    dataset, params = _exported(name, set_ or [])
    images = dataset.open(params)
    with progress_bar() as say:
        write(images, file, f"disentune {dataset.name} {params.model_dump_json()}", say)
    out.print(f"wrote {file}: {len(images):,} images. In a sweep:\n  {as_section(images, file)}", markup=False)


def _exported(name: str, sets: list[str]) -> tuple[Dataset, Any]:
    """The data set and its parameters, found by its name or by that of a prepared array."""
    from disentune.data import DATASETS
    from disentune.data.prepared.store import is_root_set, prepared_sources
    from disentune.parameters import chosen
    from disentune.spec.sweepfile import overrides_by_key

    source = prepared_sources().get(name) if is_root_set() and name not in DATASETS.names() else None
    if isinstance(source, DataError):
        raise source
    if source is None:
        return chosen(DATASETS, name, overrides_by_key(sets, example="split=training"))
    if sets:
        raise ConfigError(f"--set {sets[0]}: '{name}' is a prepared array with all its parameters; omit --set")
    return _parameters(source)
