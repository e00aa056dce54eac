import json
from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from disentune.files import documents
from disentune.spec import schema

ROOT = Path(__file__).parents[2]

EXAMPLE = """
name: quickstart
trial:
  dataset: {name: xysquares, image_size: 24, square_size: 4, grid_size: 6}
  model: {name: mlp, width: 128, latents: 9}
  recon: {name: mse}
  training: {steps: 1500, batch_size: 64, learning_rate: 1e-3}
  evaluation: {metrics: [mig], every: 300}
  loss_scale: mean
  framework.beta: 1e-3
arms:
  overlapping: {dataset.spacing: 1, framework.name: {grid: [ada_gvae, beta_vae]}}
  adversarial: {dataset.spacing: 4, framework.name: {grid: [ada_gvae, beta_vae]}}
  rescued:
    dataset.spacing: 4
    framework.name: {grid: [ada_gvae, beta_vae]}
    recon: {name: overlap, kernel: box, radius: 11, alpha: 529}
seeds: 3
objective: {metric: mig, mode: max}
resources: {cpu: 1}
"""


@cache
def validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(schema.sweep_schema() if kind == "sweep" else schema.search_space_schema())


@cache
def texts() -> dict[str, str]:
    return schema.texts()


def is_valid(text: str, kind: str = "sweep") -> bool:
    return validator(kind).is_valid(documents.parse(text, "test.yaml").value)


@pytest.mark.parametrize("name", ["sweep.schema.json", "search_space.schema.json"])
def test_the_kept_files_are_what_the_classes_say_now(name):
    kept = (ROOT / "schemas" / name).read_text()
    assert kept == texts()[name], "run `python -m disentune.spec.schema` in the repository's folder"


def test_write_makes_both_files(tmp_path):
    schema.write(tmp_path / "new")
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == texts()


def keys_without_description(schema):
    """Dotted path of each property without a description of its own or of what it refers to; a constant needs none."""
    definitions = schema["$defs"]

    def is_described(part):
        return "description" in part or "const" in part or ("$ref" in part and is_described(target(part)))

    def target(part):
        return definitions.get(part["$ref"].removeprefix("#/$defs/"), {})

    def found(part, path):
        if isinstance(part, list):
            return [name for item in part for name in found(item, path)]
        if not isinstance(part, dict):
            return []
        here = {} if "$ref" in part else part.get("properties", {})
        missing = [f"{path}/{key}" for key in here if not is_described(here[key])]
        below = {key: item for key, item in part.items() if key != "if"}  # a condition is no key of the file
        return missing + [name for key, item in below.items() for name in found(item, f"{path}/{key}")]

    return found(schema, "")


@pytest.mark.parametrize("name", ["sweep.schema.json", "search_space.schema.json"])
def test_every_key_has_a_description(name):
    assert keys_without_description(json.loads((ROOT / "schemas" / name).read_text())) == []


def test_a_key_without_a_description_is_found():
    schema = {
        "properties": {"a": {"$ref": "#/$defs/a"}, "b": {"description": "so", "properties": {"c": {}}}},
        "$defs": {"a": {"anyOf": [{"properties": {"d": {"const": 1}}}]}},
    }
    assert keys_without_description(schema) == ["/a", "/properties/b/c"]


@pytest.mark.parametrize("kind", ["sweep", "search_space"])
def test_schemas_keep_to_their_own_dialect(kind):
    Draft202012Validator.check_schema(validator(kind).schema)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        pytest.param(path, kind, id=path.name)
        for folder, kind in (("sweeps", "sweep"), ("search_spaces", "search_space"))
        for path in sorted((ROOT / folder).glob("**/*.yaml"))
    ],
)
def test_every_file_of_the_repository_is_valid(path, kind):
    assert is_valid(path.read_text(), kind)


@pytest.mark.parametrize(
    "text",
    [
        EXAMPLE,
        "trial:\narms: {one: , two: {search_space: [beta_grid, more/seeds]}}",
        "search: grid\nscheduler: none",
        "search: {name: random, points: 20}",
        "scheduler: {name: pbt, every: 100, keys: [framework.beta]}",
        "seeds: [3, 5, 8]",
        "stop: {plateau: {evaluations: 3}, steps: null}",
        "trial: {training.steps: 1e5, dataset: {transform: unit}}",
        "trial: {framework: {beta: {log_uniform: [1e-4, 1]}, ratio: 0.5}}",
        "trial: {model.latents: {int: [4, 12]}, dataset.rgb: {choice: [true, false]}, dataset.spacing: null}",
        "trial: {evaluation: {metrics: [mig, {name: dci, train: 100}]}}",
        "trial: {evaluation.metrics: {grid: [[mig], [mig, dci]]}}",
        "trial: {recon: {grid: [{name: mse}, {name: overlap, radius: 31, alpha: 3969}]}}",
        "pictures: last",
        "trial: {framework: {name: 'my.vae:FRAMEWORK', temper: 3}, framework.heat: {uniform: [0, 1]}}",
        "trial: {framework.name: {grid: [beta_vae, 'my.vae:FRAMEWORK']}, framework.temper: 3}",
        "trial: {evaluation.metrics: ['my.scores:METRIC', {name: 'my.scores:OTHER', depth: 3}]}",
    ],
)
def test_right_sweeps_are_valid(text):
    assert is_valid(text)


@pytest.mark.parametrize(
    "text",
    [
        "nam: quickstart",
        "name: a/b",
        "seeds: 0",
        "seeds: [1, 1]",
        "arms: {}",
        "arms: {a: {search_spaces: beta_grid}}",
        "arms: {a: {search_space: ../secrets}}",
        "search: random",
        "search: {points: 3}",
        "search: {name: grid, points: 3}",
        "scheduler: ashaa",
        "scheduler: {name: asha}",
        "objective: {metric: mig}",
        "objective: null",
        "stop: {plateau: {evaluations: 0}}",
        "resources: {cpus: 1}",
        "trial: {seed: 3}",
        "trial: {frameworks.beta: 1}",
        "trial: {framework.betta: 1}",
        "trial: {framework: {betta: 1}}",
        "trial: {framework: {name: betavae}}",
        "trial: {framework: {name: beta_vae, ratio: 0.5}}",
        "trial: {framework.beta: -1}",
        "trial: {framework.beta: high}",
        "trial: {framework.beta: {grid: [1, -1]}}",
        "trial: {framework.beta: {grid: []}}",
        "trial: {framework.beta: {grid: [1], uniform: [0, 1]}}",
        "trial: {framework.beta: {uniform: [0]}}",
        "trial: {framework.name: {uniform: [0, 1]}}",
        "trial: {recon: {grid: [{name: mse, radius: 31}]}}",
        "trial: {recon: {uniform: [0, 1]}}",
        "pictures: sometimes",
        "trial: {training: {batchsize: 3}}",
        "trial: {training.batchsize: 3}",
        "trial: {dataset.spacing: 0}",
        "trial: {evaluation.metrics: [mgi]}",
        "trial: {evaluation.metrics: [{name: dci, trains: 3}]}",
        "trial: {loss_scale: median}",
        "trial: {recon.name: 'my.losses:RECON', framework.temper: 3}",
    ],
)
def test_wrong_sweeps_are_refused(text):
    assert not is_valid(text)


def test_a_search_space_is_a_layer_and_nothing_else():
    assert is_valid("framework.beta: {grid: [1, 2]}\nrecon: {name: mse}", "search_space")
    assert not is_valid("search_space: other", "search_space")
    assert not is_valid("seeds: 3", "search_space")


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("{framework: {name: beta_vae, beta: {schedule: linear, initial: 0, final: 4}}}", True),
        ("{framework.beta: {schedule: cyclic, initial: 0, final: {grid: [1, 4]}, period: 10}}", True),
        ("{framework.beta.final: {log_uniform: [1, 4]}}", True),
        ("{framework.beta: {schedule: liner, initial: 0, final: 4}}", False),
        ("{framework.beta: {schedul: linear}}", False),
        ("{framework.beta.fin: 3}", False),
        ("{model.latents: {schedule: linear, initial: 1, final: 4}}", False),
        ("{framework.pairs: original}", True),
        ("{framework.pairs: {name: laplace, rate: {grid: [1, 2]}}}", True),
        ("{framework.pairs.name: {grid: [original, laplace]}}", True),
        ("{framework.pairs: orginal}", False),
        ("{framework.pairs: {name: laplace, rat: 1}}", False),
    ],
)
def test_schedules_and_named_choices(text, valid):
    assert is_valid(text, "search_space") == valid
    assert is_valid(f"{{trial: {text}}}") == valid


LAWS = [
    "law: {name: correlated, factors: [x_R, x_G], sigma: 0.1}",
    "law: {name: correlated, factors: [x_R, x_G], sigma: {grid: [0.1, 0.2]}}",
    "law: {name: product, laws: [{name: correlated, factors: [x_R, x_G], sigma: 0.1}, {name: weighted, weight: x_R}]}",
    'held_out: "x_R == 1 and y_R >= 0.5"',
    "held_out: composition",
    "held_out: {name: extrapolation, factors: [x_R], share: 0.25}",
    "held_out: {grid: [interpolation, extrapolation]}",
]


@pytest.mark.parametrize("law", LAWS)
def test_a_law_of_sampling_is_valid_in_every_form(law):
    assert is_valid(EXAMPLE.replace("grid_size: 6}", f"grid_size: 6, {law}}}"))


@pytest.mark.parametrize("law", ["law: {name: corelated}", "law: {name: correlated, weights: 1}", "held_out: 3"])
def test_a_misspelt_law_of_sampling_is_not_valid(law):
    assert not is_valid(EXAMPLE.replace("grid_size: 6}", f"grid_size: 6, {law}}}"))
