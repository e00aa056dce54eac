"""disent's own trainer, a few steps at a time: reads a number of steps, answers with CPU seconds per step.

Run by the interpreter of disent's environment: `disent_steps.py BATCH LOSS [MALLOPT]`, where MALLOPT is a JSON mapping
of glibc's options for a process with our settings.

disent imports torchvision for its transforms. Its wheel on PyPI is built for CUDA, and its compiled operators do not
load beside a CPU build of torch; so the package is entered without its `__init__`, which wants them. What disent calls
(`to_tensor`, `normalize`) is torchvision's own.
"""

import ctypes
import importlib.util
import json
import logging
import os
import sys
import time
import types
import warnings

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # whatever else is printed does not disturb them
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

spec = importlib.util.find_spec("torchvision")
torchvision = types.ModuleType("torchvision")
torchvision.__path__ = list(spec.submodule_search_locations)
torchvision.__spec__ = spec
sys.modules["torchvision"] = torchvision

import lightning  # noqa: E402
import torch  # noqa: E402
from disent.dataset import DisentDataset  # noqa: E402
from disent.dataset.data import XYSquaresMinimalData  # noqa: E402
from disent.dataset.sampling import SingleSampler  # noqa: E402
from disent.dataset.transform import ToImgTensorF32  # noqa: E402
from disent.frameworks.vae import BetaVae  # noqa: E402
from disent.model import AutoEncoder  # noqa: E402
from disent.model.ae import DecoderConv64, EncoderConv64  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

LATENTS = 9
PARAMETERS = 912_981
"""Of our conv64 at so many latents."""
MEAN, STD = [0.015625] * 3, [0.12403473458920848] * 3
"""disent's own for this set: a pixel is lit in one place of 64."""


class Turns(lightning.Callback):
    """Trains while there are orders."""

    def __init__(self) -> None:
        self.ordered = self.left = 0
        self.began = 0.0

    def wait(self) -> None:
        order = sys.stdin.readline()
        if not order:
            raise SystemExit
        self.ordered = self.left = int(order)
        self.began = time.process_time()

    def on_train_start(self, trainer: object, module: object) -> None:
        self.wait()

    def on_train_batch_end(self, *rest: object) -> None:
        self.left -= 1
        if not self.left:
            print((time.process_time() - self.began) / self.ordered, file=answers, flush=True)
            self.wait()


def main() -> None:
    batch_size, loss = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    if len(sys.argv) > 3:
        for option, value in json.loads(sys.argv[3]).items():
            ctypes.CDLL("libc.so.6").mallopt(int(option), value)
        torch.set_flush_denormal(True)
    data = XYSquaresMinimalData()
    dataset = DisentDataset(data, SingleSampler(), transform=ToImgTensorF32(mean=MEAN, std=STD))
    loader = DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=0)
    model = AutoEncoder(
        encoder=EncoderConv64(x_shape=data.x_shape, z_size=LATENTS, z_multiplier=2),
        decoder=DecoderConv64(x_shape=data.x_shape, z_size=LATENTS),
    )
    assert sum(parameter.numel() for parameter in model.parameters()) == PARAMETERS
    settings = {"optimizer": "adam", "optimizer_kwargs": {"lr": 1e-3}, "loss_reduction": "mean", "beta": 1e-3}
    module = BetaVae(model, BetaVae.cfg(recon_loss=loss, **settings))
    trainer = lightning.Trainer(
        max_epochs=-1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[Turns()],
    )
    trainer.fit(module, loader)


if __name__ == "__main__":
    main()
