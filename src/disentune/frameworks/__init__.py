"""Frameworks: the losses that papers propose."""

from disentune.frameworks import ada_gvae, beta_vae
from disentune.plugin import Catalogue, Framework

FRAMEWORKS = Catalogue("framework", Framework, [ada_gvae.FRAMEWORK, beta_vae.FRAMEWORK])
