"""Draws docs/gallery.md: runs the studies of gallery.yaml and draws every kind of figure with the product itself."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from PIL import Image

from disentune.report.kinds import KINDS
from disentune.spec.figures import FIGURES

HERE = Path(__file__).parent
STUDIES = yaml.safe_load((HERE / "gallery.yaml").read_text())
IMAGES = HERE / "images" / "gallery"
WIDEST = 1100
HEAD = """\
<!-- Written by docs/gallery.py: `make gallery`. -->

# Gallery

Every kind of figure, drawn by `disentune report` from small runs: a grid of frameworks, strengths and spacings, a
search with Optuna and ASHA, an annealed VAE, a manipulated data set, and codes in a plane
([`gallery.yaml`](gallery.yaml); `make gallery` repeats them). Put the YAML into the `figures:` list of a sweep. Every
key may be omitted: it is then chosen by what the trials differ in. All keys: [figures](reference/sweep.md#figures). The
question that a figure answers is in italics; the page of a run shows it too. The networks are tiny, so read the figures
for their form, not their values.
"""


def keys(kind: str) -> dict[str, Any]:
    """The figure as a sweep names it."""
    chosen = STUDIES["figures"].get(kind, {})
    return {"name": kind, **{key: value for key, value in chosen.items() if key != "of"}}


def study(kind: str) -> str:
    found: str = STUDIES["figures"].get(kind, {}).get("of", "grid")
    return found


def drawn(name: str, kinds: list[str], runs: Path) -> dict[str, Path]:
    """Runs one study and draws its figures; the PNG of each kind."""
    sweep = runs / f"gallery_{name}.yaml"
    sweep.write_text(yaml.safe_dump({**STUDIES[name], "figures": [keys(kind) for kind in kinds]}, sort_keys=False))
    command = [str(Path(sys.executable).with_name("disentune"))]
    environment = os.environ | {"DISENTUNE_DATA": str(runs / "data")}
    subprocess.run([*command, "run", str(sweep), "--storage", str(runs)], check=True, env=environment)
    report = [*command, "report", f"gallery_{name}", "--storage", str(runs), "--json"]
    made = json.loads(subprocess.run(report, check=True, capture_output=True, text=True).stdout)
    if made.get("left_out"):
        raise SystemExit(f"gallery: not drawn: {made['left_out']}")
    folder = runs / f"gallery_{name}" / "main" / "report" / "figures"
    return {kind: next(folder.glob(f"*-{kind.replace('_', '?')}*.png")) for kind in kinds}


def shrink(source: Path, target: Path) -> None:
    """A PNG of few colours that is no wider than a page."""
    image = Image.open(source).convert("RGB")
    image.thumbnail((WIDEST, WIDEST), Image.Resampling.LANCZOS)
    image.quantize(96, dither=Image.Dither.NONE).save(target, optimize=True)


def section(kind: str) -> str:
    spelled = yaml.safe_dump([keys(kind)], default_flow_style=None, sort_keys=False, width=200).strip()
    spelled = spelled.replace("\n", "\n  ")
    text = " ".join((FIGURES[kind].__doc__ or "").split())
    head = f"## {kind}\n\n*{KINDS[kind].question}*\n\n{text}"
    return f"{head}\n\n```yaml\nfigures:\n  {spelled}\n```\n\n![{kind}](images/gallery/{kind}.png)\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--runs", type=Path, help="folder of the runs, to continue or keep them; default: a temporary one"
    )
    chosen = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as temporary:
        runs = (chosen or Path(temporary)).resolve()
        runs.mkdir(parents=True, exist_ok=True)
        IMAGES.mkdir(parents=True, exist_ok=True)
        for name in [name for name in STUDIES if name != "figures"]:
            kinds = [kind for kind in FIGURES if study(kind) == name]
            for kind, source in drawn(name, kinds, runs).items():
                shrink(source, IMAGES / f"{kind}.png")
    for old in set(IMAGES.glob("*.png")) - {IMAGES / f"{kind}.png" for kind in FIGURES}:
        old.unlink()
    (HERE / "gallery.md").write_text("\n".join([HEAD, *map(section, FIGURES)]))


if __name__ == "__main__":
    main()
