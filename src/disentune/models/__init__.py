"""Encoders and decoders."""

from disentune.plugin import Catalogue, Model, Modules

MODELS = Catalogue(
    "model",
    Model,
    Modules[Model](
        __name__,
        "MODEL",
        "conv16",
        "conv32",
        "conv64",
        "conv64_burgess",
        "conv64_locatello",
        "conv64_mathieu",
        "dcgan",
        "linear",
        "mlp",
        "pinwheel_mlp",
    ),
)
