"""Sweep files: layers, search spaces, overrides, and messages that say where."""

import re

import pytest

from disentune.errors import ConfigError
from disentune.files import documents
from disentune.frameworks import FRAMEWORKS
from disentune.spec import space
from disentune.spec.sweepfile import Domain, parse_sweep, read_sweep

TRIAL = """\
trial:
  dataset: {name: xysquares, image_size: 24, square_size: 4, grid_size: 6}
  model: {name: mlp, width: 16, latents: 4}
  framework: {name: beta_vae, beta: 1}
  recon: {name: mse}
  training: {steps: 10, batch_size: 8, learning_rate: 1e-3}
  loss_scale: mean
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with sweeps/ and search_spaces/."""
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "search_spaces").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sweep(folder):
    """Reads a sweep from a text, with `--set` texts; TRIAL stands above it unless told otherwise."""

    def read(text="", *overrides, trial=TRIAL):
        (folder / "sweeps" / "demo.yaml").write_text(trial + text)
        return read_sweep(documents.Path("sweeps/demo.yaml"), overrides)

    return read


@pytest.fixture
def refusal(sweep):
    """[(where, text)] of a sweep that cannot be read or checked; every problem has its place."""

    def refuse(text="", *overrides, trial=TRIAL):
        with pytest.raises(ConfigError) as caught:
            space.check(sweep(text, *overrides, trial=trial))
        found = [(problem.where, problem.text) for problem in caught.value.problems]
        assert all(re.fullmatch(r"(sweeps|search_spaces)/\w+\.yaml:\d+|--set [\w.]+", where) for where, _ in found)
        return found or [("", str(caught.value))]

    return refuse


def values(sweep, arm="all"):
    return {key: entry.value for key, entry in sweep.arms[arm].items()}


# ---- layers


def test_a_sweep_without_arms_has_one_and_takes_its_name_from_its_file(sweep):
    read = sweep()
    assert read.name == "demo"
    assert list(read.arms) == ["all"]
    assert read.seeds == (0,)
    assert values(read)["training.learning_rate"] == 0.001


def test_a_section_with_a_name_replaces_the_one_below_and_a_dotted_key_changes_one_key(sweep):
    read = sweep("""\
arms:
  whole: {recon: {name: overlap, radius: 3, alpha: 9}, framework: {name: ada_gvae, beta: 2}}
  part: {framework.beta: 3, training.steps: 20}
  nested: {training: {steps: 30}}
""")
    assert {k: v for k, v in values(read, "whole").items() if k.startswith(("recon", "framework"))} == {
        "recon.name": "overlap", "recon.radius": 3, "recon.alpha": 9, "framework.name": "ada_gvae", "framework.beta": 2,
    }  # fmt: skip
    assert values(read, "part")["framework.name"] == "beta_vae"
    assert values(read, "part")["framework.beta"] == 3
    assert values(read, "part")["training.batch_size"] == 8
    assert values(read, "nested") == values(read, "part") | {"training.steps": 30, "framework.beta": 1}


SCHEDULE = "{schedule: linear, initial: 0, final: 4, end: 5}"


@pytest.mark.parametrize(("below", "above"), [("1", SCHEDULE), (SCHEDULE, "1"), (SCHEDULE, SCHEDULE)])
def test_a_schedule_takes_the_place_of_a_number_and_a_number_that_of_a_schedule(sweep, below, above):
    trial = TRIAL.replace("beta: 1", f"beta: {below}")
    read = sweep(f"arms:\n  changed: {{framework.beta: {above}}}\n  kept: {{}}\n", trial=trial)
    expected = {"1": (1, []), SCHEDULE: (0, ["beta"])}
    for arm, written in (("changed", above), ("kept", below)):
        config = space.trial_config({key: entry.value for key, entry in read.arms[arm].items()}, 0)
        assert (config.framework.params.beta, list(config.framework.schedules)) == expected[written]


def test_a_schedules_numbers_can_be_searched(sweep):
    read = sweep(f"arms:\n  a: {{framework.beta: {SCHEDULE.replace('final: 4', 'final: {grid: [1, 2]}')}}}\n")
    finals = [point.config.framework.schedules["beta"].final for point in space.check(read).points]
    assert finals == [1, 2]


def test_a_schedule_or_choice_replaces_the_one_below_whole(sweep):
    cyclic = "{schedule: cyclic, initial: 0, final: 4, period: 3}"
    read = sweep(f"arms:\n  a: {{framework.beta: {cyclic}}}\n", trial=TRIAL.replace("beta: 1", f"beta: {SCHEDULE}"))
    assert {key for key in read.arms["a"] if key.startswith("framework.beta")} == {
        f"framework.beta.{part}" for part in ("schedule", "initial", "final", "period")
    }


def test_a_wrong_schedule_has_its_line(refusal):
    found = refusal("arms:\n  a:\n    framework.beta: {schedule: linear, initial: 0, final: -4}\n")
    assert found == [("sweeps/demo.yaml:10", "framework.beta.final: must be >= 0, got -4.0")]


def test_replacing_a_section_forgets_the_keys_of_the_one_below(sweep):
    trial = TRIAL.replace("recon: {name: mse}", "recon: {name: overlap, radius: 3, alpha: 9}")
    read = sweep("arms: {plain: {recon: {name: mse}}}\n", trial=trial)
    assert [key for key in values(read, "plain") if key.startswith("recon")] == ["recon.name"]


def test_an_empty_arm_is_the_trial_itself(sweep):
    read = sweep("arms:\n  a:\n  b: {}\n")
    assert values(read, "a") == values(read, "b") == values(sweep())


def test_a_key_given_nested_and_dotted_in_one_place_is_refused(refusal):
    where, text = refusal("arms:\n  a:\n    training: {steps: 5}\n    training.steps: 6\n")[0]
    assert (where, text) == ("sweeps/demo.yaml:11", "training.steps: occurs twice, nested and with dots; keep one")


# ---- search spaces


def test_a_search_space_is_found_by_name_and_is_applied_between_trial_and_arm(sweep, folder):
    (folder / "search_spaces" / "beta.yaml").write_text("framework.beta: {log_uniform: [1e-4, 1]}\ntraining.steps: 7\n")
    read = sweep("search: {name: random, points: 2}\narms: {a: {search_space: beta, training.steps: 8}}\n")
    assert values(read, "a")["framework.beta"] == Domain(log_uniform=[1e-4, 1.0])
    assert values(read, "a")["training.steps"] == 8


def test_several_search_spaces_combine(sweep, folder):
    (folder / "search_spaces" / "one.yaml").write_text("framework.beta: {grid: [1, 2]}\n")
    (folder / "search_spaces" / "two.yaml").write_text("model.latents: {grid: [6, 7]}\n")
    read = sweep("arms: {a: {search_space: [one, two]}}\n")
    assert values(read, "a")["framework.beta"] == Domain(grid=[1, 2])
    assert values(read, "a")["model.latents"] == Domain(grid=[6, 7])


def test_two_search_spaces_that_set_one_key_are_refused(sweep, folder):
    (folder / "search_spaces" / "one.yaml").write_text("model.latents: 5\n")
    (folder / "search_spaces" / "two.yaml").write_text("model.latents: {grid: [6, 7]}\n")
    with pytest.raises(ConfigError, match=r"'one' and 'two' both set model\.latents; keep one"):
        sweep("arms: {a: {search_space: [one, two]}}\n")


def test_a_search_space_may_stand_in_a_folder_and_the_nearest_file_wins(sweep, folder):
    (folder / "search_spaces" / "deep").mkdir()
    (folder / "search_spaces" / "deep" / "x.yaml").write_text("model.latents: 5\n")
    (folder / "search_spaces" / "y.yaml").write_text("model.latents: 6\n")
    (folder / "sweeps" / "search_spaces").mkdir()
    (folder / "sweeps" / "search_spaces" / "y.yaml").write_text("model.latents: 7\n")
    read = sweep("arms: {a: {search_space: deep/x}, b: {search_space: y}}\n")
    assert values(read, "a")["model.latents"] == 5
    assert values(read, "b")["model.latents"] == 7


def test_a_missing_search_space_names_the_nearest_and_lists_the_known(refusal, folder):
    (folder / "search_spaces" / "latent_size.yaml").write_text("model.latents: 5\n")
    assert refusal("arms:\n  a:\n    search_space: latentsize\n") == [
        (
            "sweeps/demo.yaml:10",
            "search_space: no search_spaces/latentsize.yaml. Did you mean 'latent_size'? Known: latent_size",
        )
    ]


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "a/../../x", "x.yaml", ".hidden", '"a\\0b"', "''", "5", "{a: 1}", "null", "a//b"],
)
def test_a_name_that_leaves_the_folder_is_refused(refusal, folder, name):
    (folder / "x.yaml").write_text("model.latents: 5\n")
    where, text = refusal(f"arms:\n  a:\n    search_space: [{name}]\n")[0]
    assert where == "sweeps/demo.yaml:10"
    assert text.startswith("search_space: must be the name of a file in search_spaces/")


def test_a_name_longer_than_any_file_is_refused(refusal):
    assert "no search_spaces/" in refusal(f"arms: {{a: {{search_space: {'x' * 5000}}}}}\n")[0][1]


def test_a_broken_search_space_is_reported_at_its_own_line(refusal, folder):
    (folder / "search_spaces" / "bad.yaml").write_text("model.latents: 5\nmodel.latents: 6\n")
    (folder / "search_spaces" / "list.yaml").write_text("- 1\n")
    (folder / "search_spaces" / "binary.yaml").write_bytes(b"\xff\xfe")
    assert refusal("arms: {a: {search_space: [bad, list, binary]}}\n") == [
        ("search_spaces/bad.yaml:2", "'model.latents' occurs twice; keep one"),
        ("search_spaces/binary.yaml:1", "is not text in UTF-8"),
        ("search_spaces/list.yaml:1", "must be a mapping of dotted keys"),
    ]


# ---- overrides


def test_set_overrides_every_layer_of_every_arm(sweep):
    read = sweep("arms: {a: {training.steps: 20}, b: {}}\n", "training.steps=100", "framework.beta=1e-3")
    assert values(read, "a")["training.steps"] == values(read, "b")["training.steps"] == 100
    assert values(read, "a")["framework.beta"] == 0.001
    assert sweep("", "trial.training.steps=100").arms == sweep("", "training.steps=100").arms


def test_set_takes_settings_lists_domains_and_sections(sweep):
    read = sweep(
        "",
        "seeds=[3, 5]", "name=other", "evaluation.metrics=[mig, dci]", "framework.beta={grid: [1, 2]}",
        "recon={name: overlap, radius: 3, alpha: 1}", "checkpoint.keep=5", "stop.plateau.evaluations=3",
    )  # fmt: skip
    assert read.seeds == (3, 5)
    assert read.name == "other"
    assert values(read)["evaluation.metrics"] == ["mig", "dci"]
    assert values(read)["framework.beta"] == Domain(grid=[1, 2])
    assert values(read)["recon.radius"] == 3
    assert read.settings.checkpoint.keep == 5
    assert read.settings.stop.plateau.evaluations == 3


def test_set_below_a_setting_given_by_its_name_alone_keeps_the_name(sweep):
    read = sweep("search: {name: random, points: 2}\n", "search.points=9")
    assert (read.settings.search.name, read.settings.search.points) == ("random", 9)
    read = sweep("", "search=random", "search.points=9")
    assert (read.settings.search.name, read.settings.search.points) == ("random", 9)


def test_set_reaches_one_arm(sweep):
    text = "arms:\n  a: {dataset.spacing: 1}\n  b: {dataset: {name: xysquares, spacing: 1}}\n"
    read = sweep(text, "arms.a.dataset.spacing=2", "arms.b.dataset.spacing=3")
    assert values(read, "a")["dataset.spacing"] == 2
    assert values(read, "b")["dataset.spacing"] == 3


@pytest.mark.parametrize(
    ("override", "where", "words"),
    [
        ("nonsense", "--set nonsense", "must be key=value, for example --set training.steps=100"),
        ("=5", "--set =5", "must be key=value"),
        ("", "--set ", "must be key=value"),
        ("training.steps=[1", "--set training.steps:1", "expected ',' or ']'"),
        ("seed=3", "--set seed", "seed: unknown key. Did you mean 'seeds'?"),
        ("seeds=abc", "--set seeds", "seeds: must be a number of seeds"),
        ("seeds=", "--set seeds", "seeds: must be a number of seeds"),
        ("seeds.x=1", "--set seeds.x", "seeds: must be a number of seeds"),
        ("search=[1]", "--set search", "search.name: must be one of grid, random, optuna"),
        ("search={name: [a]}", "--set search", "search.name: must be one of grid, random, optuna, got ['a']"),
        ("search=ranndom", "--set search", "Did you mean 'random'?"),
        ("stop.step=5", "--set stop.step", "stop.step: unknown key. Did you mean 'steps'?"),
        ("arms.nope.training.steps=5", "--set arms.nope.training.steps", "unknown arm 'nope'"),
        ("arms=5", "--set arms", "arms: must be a mapping of at least one arm"),
        ("framework.betta=1", "--set framework.betta", "framework.betta: unknown key. Did you mean 'beta'?"),
        ("framework.beta=-1", "--set framework.beta", "framework.beta: must be >= 0"),
        ("framework.beta={grid: []}", "--set framework.beta", "must have at least 1 item"),
        ("training=5", "--set training", "training: must be a mapping, got 5"),
        ("name=../x", "--set name", "name: a name has letters"),
        ("trial=5", "--set trial", "must be a mapping of dotted keys"),
        ("wat.x.y=5", "--set wat.x.y", "wat: unknown key"),
    ],
)
def test_nonsense_in_set_is_refused_by_its_own_name(sweep, override, where, words):
    with pytest.raises(ConfigError) as caught:
        space.check(sweep("", override))
    assert caught.value.problems[0].where == where
    assert words in str(caught.value)


# ---- names and seeds


@pytest.mark.parametrize("name", ["../x", "a/b", ".x", "-x", "''", "'a b'", '"a\\n"', "5", "[a]", "null", "x" * 101])
def test_a_name_that_would_leave_the_storage_is_refused(refusal, name):
    where, text = refusal(f"name: {name}\n")[0]
    assert where == "sweeps/demo.yaml:8"
    assert text.startswith("name: a name has letters, digits")


@pytest.mark.parametrize("arm", ["../x", "a/b", "''", "'a b'"])
def test_an_arm_with_such_a_name_is_refused(refusal, arm):
    where, text = refusal(f"arms:\n  {arm}: {{}}\n")[0]
    assert where == "sweeps/demo.yaml:9"
    assert "a name has letters" in text


def test_a_file_whose_own_name_cannot_be_a_sweeps_is_refused(folder):
    path = folder / "my sweep.yaml"
    path.write_text(TRIAL)
    with pytest.raises(ConfigError, match="got 'my sweep'"):
        read_sweep(path)


@pytest.mark.parametrize(
    "seeds",
    ["0", "-1", "1.5", "[]", "[-1]", "[1, 1]", "[a]", "true", "[true]", "100001", "{a: 1}", f"[{2**63}]", "null"],
)
def test_invalid_seeds_are_refused(refusal, seeds):
    where, text = refusal(f"seeds: {seeds}\n")[0]
    assert where == "sweeps/demo.yaml:8"
    assert text.startswith("seeds: ")


# ---- domains


@pytest.mark.parametrize(
    ("domain", "words"),
    [
        ("{grid: []}", "framework.beta.grid: must have at least 1 item(s), got []"),
        ("{grid: 5}", "must be a list, got 5"),
        ("{grid: [1, 2, 1]}", "has a value twice: [1, 2, 1]"),
        ("{uniform: [1]}", "must have at least 2 item(s), got [1]"),
        ("{uniform: [1, 2, 3]}", "must have at most 2 item(s)"),
        ("{uniform: [2, 1]}", "must go from low to high, got [2.0, 1.0]"),
        ("{uniform: [a, b]}", "must be a number, got 'a'"),
        ("{uniform: [0, .inf]}", "must be a finite number, got inf"),
        ("{uniform: [-1e308, 1e308]}", "is too wide for floating-point numbers"),
        ("{log_uniform: [0, 1]}", "must be above 0, got [0.0, 1.0]"),
        ("{int: [1.5, 2]}", "must be a whole number, got 1.5"),
        ("{int: [0, 1e30]}", "must be between -9007199254740992 and 9007199254740992"),
        ("{normal: [0, 0]}", "must be [mean, standard deviation > 0], got [0.0, 0.0]"),
        ("{grid: [1], choice: [2]}", "must have exactly one of grid, choice, uniform, log_uniform, int, normal"),
        ("{grid: null}", "must have exactly one of"),
        ("{grid: [1], step: 3}", "framework.beta.step: unknown key. Known: choice, grid, int"),
    ],
)
def test_a_domain_that_makes_no_sense_is_refused_at_its_line(refusal, domain, words):
    found = refusal(f"arms:\n  a:\n    framework.beta: {domain}\n")
    assert {where for where, _ in found} == {"sweeps/demo.yaml:10"}
    assert any(words in text for _, text in found)


# ---- the top of the file


@pytest.mark.parametrize("text", ["", "# nothing\n", "[1]\n", "5\n"])
def test_a_file_that_is_not_a_mapping_is_refused(sweep, text):
    with pytest.raises(ConfigError, match="must be a mapping with at least `trial` or `arms`"):
        sweep(text, trial="")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("arm: {}\n", "arm: unknown key. Did you mean 'arms'? Known: name, question, trial, arms, seeds, search"),
        ("question: 5\n", "question: must be a string"),
        ("arms: {}\n", "arms: must be a mapping of at least one arm"),
        ("arms: [a]\n", "arms: must be a mapping of at least one arm"),
        ("arms: {a: 5}\n", "arms.a: must be a mapping of dotted keys"),
        ("arms: {a: {trainig.steps: 5}}\n", "trainig.steps: unknown key. Did you mean 'training.steps'?"),
        ("arms: {a: {seed: 5}}\n", "seed: cannot be set here; the sweep's `seeds` gives every point its seeds"),
        ("objective: {metric: mig}\n", "objective.mode: is required but not set"),
        ("objective: mig\n", "must name a metric and a mode; write objective: {metric: mig, mode: max}, or min"),
        (
            "learning_rate: 1\n",
            "learning_rate: unknown key. Did you mean 'trial.dataset.learning_rate' or 'trial.training.learning_rate'?",
        ),
        ("gpus: 1\n", "gpus: unknown key. Did you mean 'resources.gpu'?"),
        (
            "arms: {a: {lr: 5}}\n",
            "lr: unknown key. Did you mean 'dataset.learning_rate' or 'training.learning_rate'? Known: dataset, model",
        ),
        ("arms: {a: {loss: mse}}\n", "loss: unknown key. Did you mean 'recon'?"),
        ("scheduler: {name: asha}\n", "scheduler.grace: is required but not set"),
        ("scheduler: {name: pbt, every: 1, keys: [model.latents]}\n", "'model.latents' cannot change during training"),
        ("resources: {gpu: 1.5}\n", "must be a fraction of one GPU or a whole number of GPUs, got 1.5"),
        ("search: 5\n", "search.name: must be one of grid, random, optuna, got 5"),
    ],
)
def test_a_wrong_line_is_named(refusal, text, words):
    found = refusal(text)
    assert found[0][0] == "sweeps/demo.yaml:8"
    assert any(words in said for _, said in found)


@pytest.mark.parametrize("trial", ["trial: 5\n", "trial: []\n", "trial: false\n", "trial: ''\n"])
def test_a_trial_that_is_not_a_mapping_is_refused(refusal, trial):
    assert refusal(trial=trial)[0] == ("sweeps/demo.yaml:1", "must be a mapping of dotted keys")


def test_the_error_of_the_style_guide(folder):
    """Three mistakes in two files, in one message."""
    (folder / "search_spaces" / "beta.yaml").write_text(
        "# where to look\n\ntraining.batchsize: 64\n\nframework.beta: {grid: [0.1, -1]}\n"
    )
    (folder / "sweeps" / "demo.yaml").write_text("""\
name: demo
trial:
  dataset: {name: xysquares}
  model: {name: mlp, width: 16, latents: 4}
  recon: {name: mse}
  training: {steps: 10, batch_size: 8, learning_rate: 1e-3}
  framework.name: {grid: [betavae, beta_vae]}
  loss_scale: sum
arms:
  a: {search_space: beta}
""")
    with pytest.raises(ConfigError) as caught:
        space.check(read_sweep(documents.Path("sweeps/demo.yaml")))
    first, *lines = str(caught.value).replace(">= 0.0,", ">= 0,").splitlines()
    known = (
        "batch_size, clip, compile, device, learning_rate, learning_rate_schedule, log_every, optimiser, precision, "
        "replacement, steps, threads"
    )
    assert first == "sweeps/demo.yaml cannot run:"
    assert sorted(lines) == sorted([
        "  sweeps/demo.yaml:7         framework.name: unknown framework 'betavae'. Did you mean 'beta_vae'? "
        f"Known: {', '.join(FRAMEWORKS.names())}",
        f"  search_spaces/beta.yaml:3  training.batchsize: unknown key. Did you mean 'batch_size'? Known: {known}",
        "  search_spaces/beta.yaml:5  framework.beta: must be >= 0, but the grid has -1",
    ])  # fmt: skip


# ---- the resolved sweep


RICH = """\
name: rich
question: "Does it, or: does it not?"
seeds: [4, 2]
search: {name: random, points: 3, seed: 7}
scheduler: {name: asha, grace: 10}
objective: {metric: loss, mode: min}
stop: {steps: 100, plateau: {evaluations: 3}}
checkpoint: {every_steps: 5}
resources: {cpu: 0.5, concurrent: 3}
arms:
  "1e3":
    framework.beta: {log_uniform: [1e-4, 1]}
    training: {steps: 100, log_every: 10}
    model.latents: {grid: [3, 5]}
    evaluation.metrics: [mig, {name: dci}]
  b:
    training.learning_rate: {normal: [1, 1e-3]}
    framework.name: {choice: [ada_gvae, beta_vae]}
    training.log_every: 2
"""


def ids_by_arm(read):
    flats = [(arm, flat) for arm in read.arms for flat in space.arm_points(read, arm)]
    return [(arm, space.trial_config(flat, seed).id) for seed in read.seeds for arm, flat in flats]


@pytest.mark.parametrize("text", ["", "seeds: 3\narms: {a: {framework.beta: {grid: [1, 2]}}, b: {}}\n", RICH])
def test_a_resolved_sweep_read_again_is_the_same_sweep(sweep, folder, text):
    first = sweep(text, "dataset.transform=unit")
    path = folder / "elsewhere" / "sweep.yaml"
    path.parent.mkdir()
    with open(path, "w") as file:
        documents.dump(first.resolved(), file)
    second = read_sweep(path)
    assert second.settings == first.settings
    assert second.seeds == first.seeds
    assert (second.name, second.question) == (first.name, first.question)
    assert {arm: list(values(second, arm).items()) for arm in second.arms} == {
        arm: list(values(first, arm).items()) for arm in first.arms
    }
    assert ids_by_arm(second) == ids_by_arm(first)
    assert second.resolved() == first.resolved()


def test_a_resolved_sweep_needs_no_search_space_file(sweep, folder):
    (folder / "search_spaces" / "beta.yaml").write_text("framework.beta: {grid: [1, 2]}\n")
    resolved = sweep("arms: {a: {search_space: beta}}\n").resolved()
    assert resolved["arms"]["a"]["framework.beta"] == {"grid": [1, 2]}


def test_a_hundred_thousand_seeds_resolve_to_one_number(sweep):
    assert sweep("seeds: 100000\n").resolved()["seeds"] == 100000


# ---- what is seen of a sweep


SEEN = """trial: {dataset.name: xysquares}
figures:
  - violins
  - {name: violns}
  - {name: trend, z: 1}
  - 7
"""


def test_each_figure_is_named_with_its_place_and_line(tmp_path):
    (tmp_path / "a.yaml").write_text(SEEN)
    _, problems, _ = parse_sweep(tmp_path / "a.yaml")
    found = {problem.where.rpartition(":")[2]: problem.text for problem in problems}
    assert found["4"].startswith("figures.1.name: must be one of")
    assert "Did you mean 'violins'?" in found["4"]
    assert found["5"].startswith("figures.2.z: unknown key.")
    assert found["6"].endswith("got 7")


@pytest.mark.parametrize(
    "text",
    ["wandb: SECRETKEY", "wandb: {api_key: SECRETKEY}", "wandb: {mode: SECRETKEY}", "wandb: {entity: 'SECRETKEY x'}",
     "wandb: {WANDB_API_KEY: SECRETKEY}", "wandb: {project: [SECRETKEY]}", "wandb: {SECRETKEY-1: x}",
     "wandb: {sk SECRETKEY: x}", "wandb: {sk.SECRETKEY: x}", "wandb: {sk_SECRETKEY_a_b_c_d_e_f_g_h: x}"],
)  # fmt: skip
def test_a_key_in_a_file_is_refused_and_not_repeated(tmp_path, text):
    (tmp_path / "a.yaml").write_text(f"trial: {{dataset.name: xysquares}}\n{text}\n")
    _, problems, _ = parse_sweep(tmp_path / "a.yaml")
    (problem,) = problems
    assert "SECRETKEY" not in problem.text
    if "key" in text.lower().replace("secretkey", ""):
        assert "set WANDB_API_KEY or run: wandb login" in problem.text


def test_what_may_be_an_option_of_wandb_is_repeated(tmp_path):
    (tmp_path / "a.yaml").write_text("trial: {dataset.name: xysquares}\nwandb:\n  projct: x\n  save code: x\n")
    _, problems, _ = parse_sweep(tmp_path / "a.yaml")
    typo, other = [(problem.where.rpartition(":")[2], problem.text) for problem in problems]
    assert typo[0] == "3"
    assert typo[1].startswith("wandb.projct: unknown key. Did you mean 'project'? Known: best_checkpoint, ")
    assert other[0] == "4"
    assert other[1].startswith("wandb: unknown key. Known: best_checkpoint, ")


def test_an_empty_section_is_not_given_and_pictures_have_a_short_form(tmp_path):
    (tmp_path / "a.yaml").write_text("trial: {dataset.name: xysquares}\nwandb:\nfigures:\npictures: last\n")
    sweep = read_sweep(tmp_path / "a.yaml")
    assert sweep.settings.wandb is None
    assert sweep.settings.pictures.when == "last"


def test_what_is_seen_is_kept_with_the_run(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "trial: {dataset.name: xysquares}\nwandb: {tags: [a]}\nfigures: [violins, {name: trend, x: framework.beta}]\n"
    )
    kept = read_sweep(tmp_path / "a.yaml").resolved()
    assert kept["figures"] == [{"name": "violins"}, {"name": "trend", "x": "framework.beta"}]
    assert kept["wandb"] == {"tags": ["a"]}


def test_a_file_with_only_keys_of_trials_is_called_a_search_space(folder):
    (folder / "search_spaces" / "beta.yaml").write_text("framework.beta: {grid: [1, 4]}\n")
    with pytest.raises(ConfigError) as caught:
        read_sweep(documents.Path("search_spaces/beta.yaml"))
    assert str(caught.value) == (
        "search_spaces/beta.yaml is a search space, not a sweep: it has only keys of trials. In a sweep, put such keys "
        "below `trial:` or into an arm; `search_space: beta` in an arm includes a file of search_spaces/"
    )
