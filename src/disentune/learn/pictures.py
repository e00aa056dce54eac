"""What a trained model sees: reconstructions, latent traversals, and distances along each factor, as plain arrays.

Which images are shown does not depend on the trial's seed, only on the data set: every evaluation of every trial shows
the same ones, so that trials can be compared by eye. Nothing here changes a trial: not its weights, not the state of
its layers, not a generator.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from disentune.data.factors import FactorGrid
from disentune.errors import DataError
from disentune.learn import image_distances
from disentune.learn.evaluation import Trained
from disentune.learn.image_distances import decoded, doubled, finite_codes, steps_apart, undisturbed
from disentune.maths.gaussian import kl_to_prior
from disentune.maths.randomness import stream

SHOWN, SAMPLE, LATENTS, FRAMES = 8, 256, 10, 8
"""Images that are shown, images that tell how much a latent carries, latents that are traversed, steps of each."""
FACTORS, VALUES = 6, 40
"""At most so many matrices, and so many values in each."""
LINES, LINE_IMAGES = 6, 120
"""Traversals that a matrix is averaged over; of long ones fewer, so that a factor costs at most so many images."""
COLUMNS = ("factors", *image_distances.LEVELS)
"""Michlo et al., IJCAI 2023, Figs. 4 and 10: distances of the factor's values, then at each level of the model."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images are uint8 (..., h, w, c) as people see them, whatever the network's units; a data set of points has none,
    so its arrays are empty."""

    originals: np.ndarray
    """(n, h, w, c)."""
    reconstructions: np.ndarray
    """(n, h, w, c): decoded means of the originals' posteriors."""
    traversals: np.ndarray
    """(l, frames, h, w, c): the first original's mean, one latent of it going from the smallest mean of the sample to
    the largest; the latents that carry most come first."""
    latents: np.ndarray
    """(l,) int64: which ones."""
    kl: np.ndarray
    """(l,) float32: nats of each to the prior, mean over the sample."""
    spans: np.ndarray
    """(l, 2) float32: where each traversal starts and ends."""
    distances: Mapping[str, np.ndarray]
    """Factor -> float32 (5, v, v), in the order of `COLUMNS`: means over random traversals of the factor."""


_ARRAYS = [field.name for field in fields(Pictures) if field.name != "distances"]


# ---- drawing


@torch.no_grad()
def drawn(trained: Trained, seed: int = 0) -> Pictures:
    """Another `seed` shows other images. DataError when the model gives no finite numbers."""
    with undisturbed(trained.model):
        rng, grid = stream(seed, "pictures"), trained.grid
        x = trained.images(rng.choice(len(grid), min(SAMPLE, len(grid)), replace=False))
        q = finite_codes(trained, x)
        kl = kl_to_prior(doubled(q)).mean(dim=0)
        latents = torch.argsort(kl, descending=True, stable=True)[:LATENTS]
        spans = torch.stack([q.mean.amin(dim=0), q.mean.amax(dim=0)], dim=1)[latents]
        shown = SHOWN if _has_pixels(trained) else 0
        return Pictures(
            originals=_pixels(trained, x[:shown]),
            reconstructions=_pixels(trained, decoded(trained, q.mean[:shown])),
            traversals=_traversals(trained, q.mean[:shown], latents, spans),
            latents=latents.cpu().numpy(),
            kl=kl[latents].float().cpu().numpy(),
            spans=spans.cpu().numpy(),
            distances={
                grid.names[factor]: _distances(trained, factor, stream(seed, f"pictures/{grid.names[factor]}"))
                for factor in _longest(grid)
            },
        )


def _has_pixels(trained: Trained) -> bool:
    return trained.images.data.images(np.arange(1)).dtype == np.uint8


def _pixels(trained: Trained, x: Tensor) -> np.ndarray:
    """Images in the network's units as uint8 (n, h, w, c): what the transform did is undone."""
    unit = x.to(trained.images.mean) * trained.images.std + trained.images.mean
    return unit.clamp(0, 1).mul(255).round().byte().permute(0, 2, 3, 1).cpu().numpy()


def _traversals(trained: Trained, bases: Tensor, latents: Tensor, spans: Tensor) -> np.ndarray:
    channels, height, width = trained.images.data.shape
    if not len(bases):
        return np.empty((0, FRAMES, height, width, channels), np.uint8)
    z = bases[0].repeat(len(latents), FRAMES, 1)
    share = torch.linspace(0, 1, FRAMES, device=z.device)
    for row, latent in enumerate(latents.tolist()):
        z[row, :, latent] = torch.lerp(spans[row, 0], spans[row, 1], share)
    frames = _pixels(trained, decoded(trained, z.flatten(0, 1)))
    return frames.reshape(len(latents), FRAMES, height, width, channels)


# ---- distances along factors


def _longest(grid: FactorGrid) -> list[int]:
    """The factors of most values, in the data set's order; one value has no distances."""
    ranked = sorted(range(len(grid.sizes)), key=lambda factor: -grid.sizes[factor])[:FACTORS]
    return sorted(factor for factor in ranked if grid.sizes[factor] > 1)


def _distances(trained: Trained, factor: int, rng: np.random.Generator) -> np.ndarray:
    """(5, v, v): means over some lines."""
    grid, size = trained.grid, trained.grid.sizes[factor]
    values = np.linspace(0, size - 1, min(size, VALUES)).round().astype(np.int64)
    lines = min(LINES, LINE_IMAGES // len(values))
    found = image_distances.learnt(trained, grid.around(rng.integers(len(grid), size=lines), factor, values))
    matrices = np.concatenate([steps_apart(values)[None], found.mean(axis=1)])
    result: np.ndarray = np.clip(matrices, None, np.finfo(np.float32).max).astype(np.float32)
    return result


# ---- as bytes

MOST_BYTES, MOST_SHOWN = 2**26, 64
"""What pictures may unpack to, and have of anything: files come from a folder that others may write to."""


def to_bytes(pictures: Pictures) -> bytes:
    """A compressed NPZ file that NumPy reads anywhere; equal pictures give equal bytes, as it has no dates in it."""
    arrays = {name: getattr(pictures, name) for name in _ARRAYS}
    arrays |= {f"distances_{place}": matrix for place, matrix in enumerate(pictures.distances.values())}
    arrays["factors"] = np.array(list(pictures.distances), np.str_)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, array, allow_pickle=False)
            # `savez_compressed` packs harder: a twentieth smaller, for a quarter more of the time of all that is drawn.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), entry.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=1)
    return buffer.getvalue()


def from_bytes(data: bytes) -> Pictures:
    """DataError when they are not what `to_bytes` made."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                raise DataError(f"it unpacks to more than {MOST_BYTES:,} bytes")
            if archive.testzip() is not None:
                raise DataError("a checksum differs")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            factors = [str(name) for name in file["factors"]]
            distances = {name: file[f"distances_{place}"] for place, name in enumerate(factors)}
            pictures = Pictures(distances=distances, **{name: file[name] for name in _ARRAYS})
        _assert_shapes(pictures)
        "".join(factors).encode()  # no half of a character
    except Exception as error:  # a damaged archive fails in a dozen ways, and none is worth a page
        raise DataError(f"these are no pictures, or damaged ones: {type(error).__name__}: {error}") from None
    return pictures


def _assert_shapes(pictures: Pictures) -> None:
    images, frames, matrices = pictures.originals, pictures.traversals, pictures.distances.values()
    rows = len(pictures.latents)
    sound = (
        images.shape == pictures.reconstructions.shape
        and frames.shape[2:] == images.shape[1:]
        and len(frames) in (0, rows)
        and {images.dtype, pictures.reconstructions.dtype, frames.dtype} == {np.dtype(np.uint8)}
        and {array.dtype.kind for array in (pictures.kl, pictures.spans, *matrices)} == {"f"}
        and pictures.latents.dtype.kind == "i"
        and 0 not in (*images.shape[1:], *frames.shape[1:], *(m.shape[-1] for m in matrices))
        and pictures.latents.shape == pictures.kl.shape == (rows,)
        and pictures.spans.shape == (rows, 2)
        and (images.ndim, frames.ndim) == (4, 5)
        and max(len(images), rows, frames.shape[1], *(m.shape[-1] for m in matrices), 0) <= MOST_SHOWN
        and all(m.shape == (len(COLUMNS), m.shape[-1], m.shape[-1]) for m in matrices)
    )
    if not sound:
        raise DataError("shapes that do not go together")


# ---- as images

SIDE = 64
"""Pixels to which small images are enlarged, about."""
GAP, MARGIN, LINE = 4, 8, 14
"""Pixels between images, around text, and of a line of text."""
Sheet = Literal["reconstructions", "traversals", "distances"]


def sheets(pictures: Pictures) -> dict[Sheet, np.ndarray]:
    """Ready to show, uint8 (h, w, 3): `reconstructions` below their originals, `traversals` with a row a latent,
    `distances` with a row a factor, each panel in its own scale. What there is nothing of is left out."""
    found: dict[Sheet, np.ndarray] = {}
    if len(pictures.originals):
        both = np.stack([pictures.originals, pictures.reconstructions])
        found["reconstructions"] = _labelled(mosaic(both), ["image", "decoded"], [])
    if len(pictures.traversals):
        found["traversals"] = _labelled(mosaic(pictures.traversals), latent_labels(pictures), [])
    if pictures.distances:
        found["distances"] = _labelled(mosaic(_panels(pictures)), list(pictures.distances), COLUMNS)
    return found


def latent_labels(pictures: Pictures) -> list[str]:
    """Which latent each row of traversals is, with its nats."""
    pairs = zip(pictures.latents.tolist(), pictures.kl.tolist(), strict=True)
    return [f"z{latent} ({kl:.2f})" if kl < 100 else f"z{latent} ({kl:.0e})" for latent, kl in pairs]


def mosaic(images: np.ndarray, side: int = SIDE) -> np.ndarray:
    """Images (rows, columns, h, w, c) side by side, small ones enlarged; uint8 (H, W, 4) with transparent gaps."""
    images = _enlarged(_coloured(images), side)
    opaque = np.concatenate([images, np.full_like(images[..., :1], 255)], axis=-1)
    padded = np.pad(opaque, [(0, 0), (0, 0), (0, GAP), (0, GAP), (0, 0)])
    rows, columns, height, width, _ = padded.shape
    joined = padded.swapaxes(1, 2).reshape(rows * height, columns * width, 4)
    return joined[:-GAP, :-GAP]


def _coloured(images: np.ndarray) -> np.ndarray:
    """(..., 3): grey ones as they look; of other numbers of channels the first three are red, green and blue."""
    if images.shape[-1] == 1:
        return images.repeat(3, axis=-1)
    missing = max(0, 3 - images.shape[-1])
    return np.pad(images[..., :3], [(0, 0)] * (images.ndim - 1) + [(0, missing)])


def _enlarged(images: np.ndarray, side: int) -> np.ndarray:
    """Whole times, so that each pixel becomes a square."""
    times = max(1, side // max(images.shape[-3:-1]))
    return images.repeat(times, axis=-3).repeat(times, axis=-2)


def _panels(pictures: Pictures) -> np.ndarray:
    """(factors, columns, h, w, 3): matrices of all sizes as squares of one."""
    side = max(SIDE, max(stack.shape[-1] for stack in pictures.distances.values()))
    panels = [[_shades()[_levels(_resized(matrix, side))] for matrix in stack] for stack in pictures.distances.values()]
    return np.array(panels)


def _resized(matrix: np.ndarray, side: int) -> np.ndarray:
    nearest = np.arange(side) * len(matrix) // side
    return matrix[np.ix_(nearest, nearest)]


def _levels(matrix: np.ndarray) -> np.ndarray:
    """0 to 255 from the smallest finite number to the largest; equal numbers are all 0."""
    finite = matrix[np.isfinite(matrix)].astype(np.float64)
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    share = (np.nan_to_num(matrix.astype(np.float64), nan=low, posinf=high, neginf=low) - low) / ((high - low) or 1.0)
    return np.round(255 * share).astype(np.uint8)


@lru_cache(maxsize=1)
def _shades() -> np.ndarray:
    """uint8 (256, 3): from dark blue to light yellow, even in perceived lightness: a straight line in Oklab
    (Ottosson 2020), which colour-blind readers see as well."""
    share = np.linspace(0, 1, 256)[:, None]
    lab = (1 - share) * [0.28, -0.02, -0.10] + share * [0.94, -0.03, 0.15]
    cones = (lab @ np.array([[1, 1, 1], [0.3963377774, -0.1055613458, -0.0894841775],
                             [0.2158037573, -0.0638541728, -1.2914855480]])) ** 3  # fmt: skip
    linear = cones @ np.array([[4.0767416621, -1.2684380046, -0.0041960863],
                               [-3.3077115913, 2.6097574011, -0.7034186147],
                               [0.2309699292, -0.3413193965, 1.7076147010]])  # fmt: skip
    linear = np.clip(linear, 0, 1)
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    found: np.ndarray = np.round(255 * encoded).astype(np.uint8)
    return found


def _labelled(image: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> np.ndarray:
    """On white, a name at the left of each row and above each column."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default()
    names = [name.encode("latin-1", "replace").decode("latin-1") for name in rows]
    left = MARGIN + max(int(font.getlength(name)) for name in names) + MARGIN
    top = MARGIN + (LINE if columns else 0)
    height, width = image.shape[:2]
    sheet = Image.new("RGB", (left + width + MARGIN, top + height + MARGIN), "white")
    content = Image.fromarray(image)
    sheet.paste(content, (left, top), mask=content)
    draw = ImageDraw.Draw(sheet)
    for place, name in enumerate(names):
        draw.text((left - MARGIN, top + (place + 0.5) * (height + GAP) / len(names)), name, "black", font, "rm")
    for place, name in enumerate(columns):
        draw.text((left + (place + 0.5) * (width + GAP) / len(columns), top - 4), name, "black", font, "ms")
    return np.asarray(sheet)
