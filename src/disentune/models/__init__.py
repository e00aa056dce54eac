"""Encoders and decoders."""

from disentune.models import conv64, mlp
from disentune.plugin import Catalogue, Model

MODELS = Catalogue("model", Model, [conv64.MODEL, mlp.MODEL])
