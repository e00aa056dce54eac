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

    def stages(self, z: Tensor) -> list[Tensor]:
        """Outputs of the decoder's layers, each after its activation; the last is that of `decode`. A decoder that is
        not a sequence of layers has one."""
        decoder = getattr(self.decoder, "_orig_mod", self.decoder)  # a compiled module hides its layers
        found: list[Tensor] = []
        for layer in decoder if isinstance(decoder, nn.Sequential) else [decoder]:
            z = layer(z)
            begins = next(layer.parameters(), None) is not None
            if begins or not found:
                found.append(z)
            else:
                found[-1] = z
        return found
