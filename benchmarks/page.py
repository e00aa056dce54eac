"""docs/benchmarks.md from what the benchmarks have measured: runs/bench/*.json, and benchmarks/kept/*.json."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
from environments import RIVALS
from ratios import KEPT, ROOT, Measurement, results_folder

PAGE = ROOT / "docs" / "benchmarks.md"
BUSY = 0.7
"""A load average above which other programs had a part in the numbers."""
GROUPS = {
    "commands": (
        "Commands",
        "CPU time of whole commands that look at a run: with its files unchanged since an earlier look (`again`), "
        "after one trial has changed (`changed`), or with an empty cache (`first`).",
    ),
    "step": (
        "Training step",
        "CPU time on one thread, against loops that a researcher writes by hand with PyTorch alone.",
    ),
    "disent": (
        "disent's own trainer",
        "disent trains with Lightning in an environment of its own: same network, data, batch and optimiser. As "
        "shipped, and in a process with our settings of the allocator, which is like for like. The wheel of "
        "torchvision that disent imports is built for CUDA, so its compiled operators are left out; the transforms "
        "that disent calls are torchvision's own.",
    ),
    "loss": ("Overlap loss", "Box kernel of radius 31, alpha 63²: the loss of the paper."),
    "scoring": (
        "Scoring",
        "Published sizes, one thread. The published procedure encodes fresh images for every metric and fits "
        "scikit-learn's trees.",
    ),
    "data": ("Data", "Batches of 256 images of 64 x 64 pixels, everything in the page cache."),
    "runners": (
        "Short trials: other runners of sweeps",
        "Trials an hour with two slots, whole commands, starting and ending included. Everyone is given the same "
        "training function. Ours also writes rows, a checkpoint, pictures, a table and a figure; the others keep each "
        "trial's loss. Where Optuna in two processes or Syne Tune win, it is by starting no cluster: Ray takes four "
        "seconds to start, its workers as long to load torch, and its own processes a few percent of two cores, which "
        "a sweep of a dozen short trials does not earn back. A worker that takes trial after trial costs nothing more: "
        "see the slots kept busy.",
    ),
    "slots": ("Slots kept busy", "Trial-seconds / (slots x wall time)."),
    "resume": ("A killed run continues", "The driver was killed as by a power cut."),
    "scale": (
        "Many trials",
        "Sweeps of trials that train one step on a tiny world, killed half-way and resumed. The shape of the largest "
        "is that of Locatello et al. (2019): 6 methods x 6 strengths x 7 data sets x 50 seeds.",
    ),
}
TEMPLATE = """\
# Benchmarks

Written by `make bench` (benchmarks/page.py) from its own measurements; not by hand.

| | |
|---|---|
{%- for name, value in machine %}
| {{ name }} | {{ value }} |
{%- endfor %}

Rivals take turns with ours in the same run; a ratio is the median over rounds of neighbours, with its quartiles in
brackets; one without brackets was measured once. A target `>=` is for rival / ours (above 1 ours is better), a target
`<=` for what ours adds or takes. "Ahead" means that the target is met, "behind" that it is not.

{{ met }} of {{ judged }} targets are met.
{%- for line in remarks %}
{{ line }}
{%- endfor %}
{% for title, text, rows in sections %}
## {{ title }}

{{ text | wordwrap(118) }}

| what | ours | rival | measured | target | verdict |
|---|---|---|---|---|---|
{%- for row in rows %}
| {{ row | join(" | ") }} |
{%- endfor %}
{% endfor %}"""


def shown(value: float | None, unit: str = "") -> str:
    """Three digits."""
    if value is None:
        return ""
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip() if unit != "/h" else f"{text} an hour"


def row_of(one: Measurement) -> tuple[str, ...]:
    unit = "" if one.ratio is not None else one.unit
    spread = f" [{shown(one.quartiles[0])} to {shown(one.quartiles[1])}]" if one.quartiles else ""
    measured = f"**{shown(one.judged)}**{spread}{f' {unit}' if unit else ''}"
    sign = {"at most": "<=", "at least": ">=", "": ""}[one.bound]
    target = f"{sign} {one.goal:g}{f' {unit}' if unit else ''}" if one.goal is not None else ""
    sides = (shown(one.ours, one.unit), shown(one.rival, one.unit)) if one.ratio is not None else ("", "")
    name = f"{one.name} ({one.note})" if one.note else one.name
    return name, *sides, measured, target, one.verdict


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def measurements(files: Iterable[dict[str, Any]]) -> list[Measurement]:
    return [Measurement(**one) for file in files for one in file["measurements"]]


def pinned(rival: str, package: str) -> str:
    lines = (RIVALS / f"{rival}.txt").read_text().splitlines()
    return next(line.split("==")[1] for line in lines if line.startswith(f"{package}=="))


def machine_rows(files: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Of the newest result; what kept ones were measured on stands with them."""
    newest = max(files, key=lambda file: file["time"])
    machine, packages = newest["machine"], newest["machine"]["packages"]
    ours = ", ".join(f"{name} {packages[name]}" for name in ("torch", "numpy", "scikit-learn", "ray", "optuna"))
    rivals = {"disent": ("disent", "lightning"), "syne_tune": ("syne-tune",)}
    theirs = ", ".join(f"{package} {pinned(rival, package)}" for rival, names in rivals.items() for package in names)
    return [
        ("processor", f"{machine['cpu']}, {machine['cores']} cores; GPUs: {', '.join(machine['gpus']) or 'none'}"),
        ("memory", f"{machine['memory_gb']:g} GB"),
        ("versions", f"Python {machine['python']}, {ours}"),
        ("rivals", theirs),
        ("commit", machine["commit"] or "unknown"),
        ("measured", f"{newest['time']}, {sum(file['seconds'] for file in files) / 60:.0f} minutes in all"),
    ]


def remarks(files: list[dict[str, Any]], kept: list[dict[str, Any]], found: list[Measurement]) -> list[str]:
    lines = []
    if behind := [one for one in found if not one.good]:
        lines += ["", "Behind the target:", "", *(f"- {one.name}: {shown(one.judged)}" for one in behind)]
    if beaten := [one for one in found if one.rival_wins]:
        lines += ["", "The rival wins:", "", *(f"- {one.name}: {shown(one.ratio)}" for one in beaten)]
    names = {path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py")}
    if missing := sorted(names - {file["benchmark"] for file in [*files, *kept]}):
        lines += ["", f"Without a result, because they broke or were not run: {', '.join(missing)}."]
    if busy := [file for file in files if file["load_before"] > BUSY * file["machine"]["cores"]]:
        told = ", ".join(f"{file['benchmark']} ({file['load_before']:.1f})" for file in busy)
        why = "Load average of the last minute before the start, by what was measured before or other programs"
        lines += ["", f"{why}: {told}."]
    return lines


def sections(files: list[dict[str, Any]], kept: list[dict[str, Any]]) -> list[tuple[str, str, list[tuple[str, ...]]]]:
    found, made = measurements(files), []
    for group, (title, text) in GROUPS.items():
        if rows := [row_of(one) for one in found if one.group == group]:
            made.append((title, text, rows))
    for file in kept:
        machine = file["machine"]
        note = (
            f"Measured once by hand ({file['time']}, {file['seconds'] / 60:.0f} minutes, {machine['cpu']}, "
            f"{machine['cores']} cores, commit {machine['commit']}) and kept in benchmarks/kept."
        )
        rows = [row_of(one) for one in measurements([file])]
        made.append((f"Kept: {file['benchmark']}", note, rows))
    return made


def main() -> None:
    files, kept = read(results_folder()), read(KEPT)
    if not files and not kept:
        raise SystemExit(f"{results_folder()} holds no results; run: make bench")
    found = measurements([*files, *kept])
    judged = [one for one in found if one.goal is not None]
    text = jinja2.Template(TEMPLATE, trim_blocks=False).render(
        machine=machine_rows(files or kept),
        met=sum(one.good for one in judged),
        judged=len(judged),
        remarks=remarks(files, kept, found),
        sections=sections(files, kept),
    )
    PAGE.write_text(text.rstrip() + "\n")
    print(f"{PAGE.relative_to(ROOT)}: {sum(one.good for one in judged)} of {len(judged)} targets are met")


if __name__ == "__main__":
    main()
