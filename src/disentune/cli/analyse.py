"""`disentune analyse`: the analyses of Locatello et al., ICML 2019, for a run or any table of scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from disentune.cli.options import AsJson, Storage
from disentune.cli.terminal import err, out, print_json
from disentune.errors import ConfigError, first_line, unknown
from disentune.files.storage import DEFAULT_STORAGE

if TYPE_CHECKING:
    import pandas as pd

    from disentune.analysis.catalogue import Analysis

TABLES = (".csv", ".parquet")


def analyse(
    what: Annotated[str, typer.Argument(metavar="RUN|TABLE", help="A run, or a table of scores: .csv or .parquet.")],
    analysis: Annotated[
        str | None,
        typer.Option(help="One analysis, such as variance_explained. Default: every analysis that the scores allow."),
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(help="Scores to analyse, separated by commas. Default: those of the study, or all.")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Columns of the table: dataset=A,method=B,strength=C,seed=D. Default: the columns with these names."
        ),
    ] = None,
    as_json: AsJson = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Analyses the scores of a study: does the method or the seed explain them, and do metrics agree?

    total_correlation: TC of mean and sampled codes against the strength.
    agreement: rank correlation of metrics on each data set.
    variance_explained: R2 of method, and of method and strength.
    transfer: rank correlation of settings between data sets.
    selection: how often the best setting beats a random model elsewhere.
    downstream: accuracies, and how metrics rank with them.
    unsupervised_selection: how label-free numbers rank with metrics.

    Higher scores must be better. Intervals are 95 %.

    Examples:
    disentune analyse small_unsupervised_study
    disentune analyse scores.csv --columns dataset=data,method=model --analysis variance_explained --json
    """
    from disentune.analysis import ANALYSES
    from disentune.analysis.scores import left_out, metrics_of

    if analysis is not None and analysis not in ANALYSES:
        raise ConfigError(f"--analysis: {unknown('analysis', analysis, ANALYSES)}")
    frame = _table(what, columns, storage)
    asked = [name.strip() for name in metrics.split(",")] if metrics else None
    if asked:
        metrics_of(frame, asked)  # otherwise each analysis would report it
    elif what.endswith(TABLES) and (others := left_out(frame)):
        err.print(f"note: not analysed: {', '.join(others)}; name all scores with --metrics", markup=False)
    found = {analysis: ANALYSES[analysis].rows(frame, asked)} if analysis else _every(frame, asked)
    if as_json:
        shown = [{"analysis": name, "rows": _records(rows)} for name, rows in found.items()]
        print_json(shown[0] if analysis else shown)
        return
    for name, rows in found.items():
        _show(ANALYSES[name], rows)


def _every(frame: pd.DataFrame, metrics: list[str] | None) -> dict[str, pd.DataFrame]:
    """All analyses that these scores allow; ConfigError with the reasons when there is none."""
    from disentune.analysis import ANALYSES

    found, reasons = {}, {}
    for name, analysis in ANALYSES.items():
        try:
            found[name] = analysis.rows(frame, metrics)
        except ConfigError as error:
            reasons[name] = first_line(error)
    if not found:
        raise ConfigError(next(iter(dict.fromkeys(reasons.values()))))
    for name, reason in reasons.items():
        err.print(f"note: no {name}: {reason}", markup=False)
    return found


def _table(what: str, columns: str | None, storage: str) -> pd.DataFrame:
    from disentune.analysis.scores import renamed

    if not what.endswith(TABLES):
        if columns:
            raise ConfigError("--columns: only for a table of scores; omit it for a run")
        return _run_table(what, storage)
    return renamed(_read(Path(what)), _mapping(columns))


def _run_table(run: str, storage: str) -> pd.DataFrame:
    from disentune.analysis.runs import score_table
    from disentune.results.tables import read
    from disentune.runs.ledger import find_run

    results = read(find_run(run, storage))
    frame, notes = score_table(results)
    for note in (*results.notes, *notes):
        err.print(f"note: {note}", markup=False)
    return frame


def _read(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise ConfigError(f"{path} does not exist")
    try:
        return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except (ValueError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as {path.suffix[1:]}: {first_line(error)}") from None


def _mapping(columns: str | None) -> dict[str, str]:
    found = {}
    for entry in (columns or "").split(",") if columns else ():
        key, equals, column = (part.strip() for part in entry.partition("="))
        if not (key and equals and column):
            raise ConfigError(f"--columns {columns}: must look like dataset=A,method=B, but has '{entry}'")
        found[key] = column
    return found


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Plain values; null for what is missing."""
    plain = rows.astype(object).where(rows.notna(), None)
    return [{str(key): _plain(value) for key, value in row.items()} for row in plain.to_dict("records")]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _show(analysis: Analysis, rows: pd.DataFrame) -> None:
    from rich.markup import escape

    from disentune.cli.display import frame_table

    out.print(f"\n[bold]{analysis.name}[/]: {escape(analysis.question)}")
    out.print(frame_table(rows))
