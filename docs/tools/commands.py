"""The reference of commands, from the typer app."""

import enum
import re
from typing import Any

import typer
from tools.keys import cell

from disentune.cli.app import app

EXIT_CODES = {
    0: "done",
    1: "done, but some trials failed",
    2: "wrong input; nothing was started",
    70: "a bug in disentune",
    75: "the storage or Ray does not answer; try again later",
    130: "interrupted; the run can be resumed",
}


def page() -> str:
    commands = sorted(leaves(typer.main.get_command(app)), key=lambda leaf: leaf[0])
    sections = [section(name, command) for name, command in commands]
    overview = [f"| [`{name}`](#{name.replace(' ', '-')}) | {first(command)} |" for name, command in commands]
    codes = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(
        [
            "# Commands\n",
            "`disentune COMMAND --help` prints the same text in the terminal.\n",
            "| command | what it does |",
            "|---|---|",
            *overview,
            "",
            *sections,
            "## Exit codes\n",
            "| code | meaning |",
            "|---|---|",
            *codes,
            "",
        ]
    )


def first(command: Any) -> str:
    """The first paragraph of its help."""
    return cell((command.help or "").strip().split("\n\n")[0])


def leaves(command: Any, path: str = "disentune") -> list[tuple[str, Any]]:
    """Every command that does something, with its full name."""
    below = getattr(command, "commands", None)
    if below is None:
        return [(path, command)]
    return [leaf for name, one in below.items() if not one.hidden for leaf in leaves(one, f"{path} {name}")]


def section(name: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not hidden(one)]
    usage = " ".join([name, *(spelled(one) for one in arguments), *(["[OPTIONS]"] if options else [])])
    return "\n".join(
        [f"## {name}\n", f"```text\n{usage}\n```\n", prose(command.help or ""), *table(arguments + options)]
    )


def hidden(parameter: Any) -> bool:
    return bool(getattr(parameter, "hidden", False)) or parameter.name == "help"


def spelled(argument: Any) -> str:
    name = argument.name.upper().strip("_")
    name = f"{name}..." if argument.nargs == -1 else name
    return name if argument.required else f"[{name}]"


def prose(text: str) -> str:
    """Help as Markdown: its examples as a block of commands."""
    text = text.replace("\b\n", "").strip()
    text, _, examples = re.split(r"\n\s*(Examples?:)", f"{text}\n", maxsplit=1) if "Example" in text else (text, "", "")
    paragraphs = "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
    commands = [line.strip() for line in re.split(r"[\n;]\s*", examples) if line.strip()]
    block = ["", "```bash", *commands, "```"] if commands else []
    return "\n".join([paragraphs.strip(), *block, ""])


def table(parameters: list[Any]) -> list[str]:
    if not parameters:
        return []
    rows = [f"| {names(one)} | {kind(one)} | {default(one)} | {cell(one.help or '')} |" for one in parameters]
    return ["| | type | default | |", "|---|---|---|---|", *rows, ""]


def names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper().strip('_')}`"
    return ", ".join(f"`{one}`" for one in [*parameter.opts, *parameter.secondary_opts])


def kind(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return "flag"
    annotation = parameter.type_descriptor.annotation
    repeated = " (repeatable)" if getattr(parameter, "multiple", False) else ""
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return " or ".join(f"`{one.value}`" for one in annotation)
    words = {"str": "text", "int": "whole number", "float": "number", "Path": "path", "bool": "true or false"}
    text = str(getattr(annotation, "__name__", annotation))
    text = str(annotation.__args__[0].__name__) if text == "list" else text
    return words.get(text, text) + repeated


def default(parameter: Any) -> str:
    value = getattr(parameter, "default", None)
    value = value.value if isinstance(value, enum.Enum) else value
    if parameter.required:
        return "required"
    return "" if value in (None, False, "", [], ()) or callable(value) else f"`{value}`"
