"""What every model is made of. Apart from the other contracts of plug-ins, because it loads torch."""

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Posterior:
    """Diagonal Gaussians q(z|x): mean and logvar are (n, d)."""

    mean: Tensor
    logvar: Tensor


class AutoEncoder(nn.Module):
    """An encoder to 2 d numbers (means, then log-variances) and a decoder from d."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, latents: int):
        super().__init__()
        self.encoder, self.decoder, self.latents = encoder, decoder, latents

    def encode(self, x: Tensor) -> Posterior:
        mean, logvar = self.encoder(x).chunk(2, dim=1)
        return Posterior(mean, logvar)

    def decode(self, z: Tensor) -> Tensor:
        found: Tensor = self.decoder(z)
        return found
