"""Encoders and decoders."""

from disentune.models import (
    conv16,
    conv32,
    conv64,
    conv64_burgess,
    conv64_locatello,
    conv64_mathieu,
    dcgan,
    linear,
    mlp,
    pinwheel_mlp,
)
from disentune.plugin import Catalogue, Model

MODELS = Catalogue(
    "model",
    Model,
    [
        conv16.MODEL,
        conv32.MODEL,
        conv64.MODEL,
        conv64_burgess.MODEL,
        conv64_locatello.MODEL,
        conv64_mathieu.MODEL,
        dcgan.MODEL,
        linear.MODEL,
        mlp.MODEL,
        pinwheel_mlp.MODEL,
    ],
)
