"""Small models as they come from a checkpoint, without a run."""

from typing import Any

from conftest import trial_config
from disentune.learn.training import Training
from disentune.results.rescore import Rebuilt
from disentune.results.tables import Record
from disentune.results.trained import TrainedModel

SIDES = {"conv16": 16, "conv32": 32, "conv64": 64, "conv64_burgess": 64, "conv64_locatello": 64, "conv64_mathieu": 64,
         "dcgan": 16}  # fmt: skip
SQUARES = {"dataset__square_size": 2, "dataset__grid_size": 3, "dataset__squares": 2, "dataset__spacing": 1}
SIZES: dict[str, dict[str, Any]] = {"mlp": {"model__width": 8}, "pinwheel_mlp": {"model__width": 8}}


def model_named(name: str, **changes: Any) -> TrainedModel:
    """The named model with random weights, for pictures of the smallest size that suits it."""
    given = {"model__name": name, "model__latents": 3, "dataset__image_size": SIDES.get(name, 8), **SQUARES}
    return rebuilt_from(trial_config(**{**given, **SIZES.get(name, {}), **changes}))


def rebuilt_from(config: Any) -> TrainedModel:
    return TrainedModel(Rebuilt(config.id, config, Training(config).trained_model(), 7, ()))


def record_of_model(model: TrainedModel) -> Record:
    rows = [{"step": 5, "metrics": {"mig": 0.25, "sap": float("nan")}}, {"step": 9, "metrics": {"mig": 0.5}}]
    config = model.found.config
    return Record(config.id, ("all",), "done", config.tree(), rows)
