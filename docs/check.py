"""Checks the Markdown pages: links lead somewhere, named files exist, code blocks marked as commands run.

A comment on the line before a code block marks it:

    <!-- run -->                  a line after `$ ` is a command; what follows is its output. `...` stands for anything,
                                  and numbers with a decimal point are not compared. A Python block is run as a whole.
    <!-- run: long -->            only with --long
    <!-- run: exit 2 -->          the last command must end with this exit code; otherwise every command with 0
    <!-- file: sweeps/my.yaml --> the block becomes this file

The blocks of a page run one after another in one temporary folder that has sweeps/, search_spaces/ and cluster/.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\]\(([^)\s]+)\)")
NAMED = re.compile(r"\b((?:src/disentune|tests|sweeps|benchmarks|docs)/[\w/.-]+\.(?:py|yaml|md))\b")
MARK = re.compile(r"<!-- (run|file)(?:: (.*))? -->")
OPTION = re.compile(r"long|exit \d+")
HEADING = re.compile(r"#{1,6} +(.*)")
DECIMAL = re.compile(r"-?\d+[.]\d+(?:e[-+]?\d+)?|\d+e[-+]\d+|\bnan\b")
OWN_FILES = {
    "src/disentune/frameworks/free_bits_vae.py", "tests/frameworks/test_free_bits_vae.py",
    "sweeps/demo.yaml", "sweeps/x.yaml", "sweeps/NAME.yaml", "sweeps/my_study.yaml",
    "sweeps/donors.yaml", "sweeps/changed_squares.yaml",
}  # fmt: skip
"""Files of the reader's own that a page may name."""
LONGEST_S = 3600


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def shown(page: Path, line: int, text: str) -> str:
    return f"{page.relative_to(ROOT) if page.is_relative_to(ROOT) else page}:{line}: {text}"


# ---- links


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines outside code blocks, without code spans."""
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield number, re.sub(r"`[^`]*`", "", line)


def anchors(page: Path) -> set[str]:
    """The ids of its headings, as the site makes them."""
    titles = [found[1] for _, line in headings(page) if (found := HEADING.match(line))]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


def headings(page: Path) -> Iterator[tuple[int, str]]:
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        inside ^= line.lstrip().startswith("```")
        if not inside:
            yield number, line


def wrong_links(page: Path) -> Iterator[str]:
    for number, line in prose(page):
        for target in LINK.findall(line):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            file = (page.parent / path).resolve() if path else page
            if not file.is_file():
                reason = ": is a folder, which the site does not have" if file.is_dir() else ""
                yield shown(page, number, f"broken link: {target}{reason}")
            elif anchor and file.suffix == ".md" and ":::" not in file.read_text() and anchor not in anchors(file):
                yield shown(page, number, f"broken link: {target}: no such heading")


def wrong_names(page: Path) -> Iterator[str]:
    """Files of the repository that a page names and that are not there."""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        missing = [name for name in NAMED.findall(line) if not (ROOT / name).exists()]
        yield from (shown(page, number, f"no such file: {name}") for name in missing if name not in OWN_FILES)


# ---- code blocks


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    """Of its first line of code."""
    language: str
    text: str
    kind: str
    """`run` or `file`."""
    options: tuple[str, ...]

    @property
    def long(self) -> bool:
        return "long" in self.options

    @property
    def code(self) -> int:
        """The exit code that its last command must have."""
        return next((int(one.split()[1]) for one in self.options if one.startswith("exit ")), 0)

    def commands(self) -> list[tuple[int, str, list[str]]]:
        """Line, command and expected output of each."""
        found: list[tuple[int, str, list[str]]] = []
        if self.language == "python":
            return [(self.line, self.text, [])]
        for number, line in enumerate(self.text.splitlines(), self.line):
            if line.startswith("$ "):
                found.append((number, line[2:], []))
            elif found:
                found[-1][2].append(line)
        return found


def blocks(page: Path) -> Iterator[Block]:
    """The marked blocks of a page; a mark that is not understood is a ValueError with its line."""
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines):
        mark = MARK.fullmatch(line.strip())
        if mark is None:
            continue
        fence = lines[number + 1].strip() if number + 1 < len(lines) else ""
        if not fence.startswith("```"):
            raise ValueError(shown(page, number + 1, "a mark must be on the line before a code block"))
        end = next((at for at in range(number + 2, len(lines)) if lines[at].strip() == "```"), None)
        if end is None:
            raise ValueError(shown(page, number + 2, "the code block is not closed"))
        options = tuple(one.strip() for one in (mark[2] or "").split(",") if one.strip())
        if not (options if mark[1] == "file" else all(OPTION.fullmatch(one) for one in options)):
            raise ValueError(shown(page, number + 1, f"not understood: {mark[0]}; see docs/check.py --help"))
        text = "\n".join(lines[number + 2 : end]) + "\n"
        yield Block(page, number + 3, fence[3:].split(" ")[0], text, mark[1], options)


def workspace(folder: Path) -> None:
    for name in ("sweeps", "search_spaces", "cluster"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "cluster.yaml", folder)


def environment(folder: Path) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    plain = {"COLUMNS": "160", "NO_COLOR": "1", "OMP_NUM_THREADS": "1", "WANDB_MODE": "disabled", "TERM": "dumb"}
    return os.environ | plain | {"PATH": path, "PYTHONPATH": str(ROOT / "src")}


def run_page(page: Path, long: bool = False) -> Iterator[str]:
    """What goes wrong when the marked blocks of a page run, each with its line; stops at the first."""
    try:
        marked = [block for block in blocks(page) if long or not block.long]
    except ValueError as error:
        yield str(error)
        return
    if not any(block.kind == "run" for block in marked):
        return
    with tempfile.TemporaryDirectory() as temporary:
        workspace(Path(temporary))
        for block in marked:
            if block.kind == "file":
                target = Path(temporary, block.options[0])
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text)
            elif wrong := next(failures(block, Path(temporary)), None):
                yield wrong
                return


def failures(block: Block, folder: Path) -> Iterator[str]:
    commands = block.commands()
    if not commands:
        yield shown(block.page, block.line, "marked to run, but has no line that starts with `$ `")
    for number, (line, command, expected) in enumerate(commands, 1):
        wanted = block.code if number == len(commands) else 0
        arguments = [sys.executable, "-c", command] if block.language == "python" else ["bash", "-c", command]
        done = subprocess.run(
            arguments, cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=LONGEST_S,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        printed = done.stdout or done.stderr  # progress goes to standard error
        if done.returncode != wanted:
            text = f"exit code {done.returncode} instead of {wanted}: {command}"
            yield shown(block.page, line, f"{text}\n{done.stdout}{done.stderr}")
        elif expected and not agrees(expected, printed.splitlines()):
            yield shown(block.page, line, f"prints something else: {command}\n{printed}")


def agrees(expected: Iterable[str], printed: Iterable[str]) -> bool:
    """Whether the output is as shown: spaces and numbers with a decimal point do not count, `...` is anything."""
    pattern = r"\n".join(
        r"(?:.*\n)*?.*" if line == "..." else re.escape(line).replace(re.escape("..."), ".*")
        for line in map(plain, expected)
    )
    return re.fullmatch(pattern + r"\n*", "\n".join(map(plain, printed))) is not None


def plain(line: str) -> str:
    return re.sub(r"[ ─]+", " ", DECIMAL.sub("#", line)).strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, help="default: every page")
    parser.add_argument("--long", action="store_true", help="also the commands that take minutes")
    parser.add_argument("--no-run", action="store_true", help="only links and names")
    arguments = parser.parse_args()
    chosen = [page.resolve() for page in arguments.pages] or pages()
    wrong = [problem for page in chosen for problem in (*wrong_links(page), *wrong_names(page))]
    if not arguments.no_run:
        wrong += [problem for page in chosen for problem in run_page(page, arguments.long)]
    sys.stderr.writelines(f"{problem}\n" for problem in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
