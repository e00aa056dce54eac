"""Pictures of a trained model: reconstructions, latent traversals, and distances along each factor, as plain arrays.

The choice of images depends only on the data set, not on the trial's seed: every evaluation of every trial shows the
same images, so that trials can be compared by eye. Drawing changes nothing in a trial: neither weights, nor the state
of layers, nor generators.
"""

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from disentune.data.factors import FactorGrid, FactorTable
from disentune.errors import DataError
from disentune.learn import image_distances, plane
from disentune.learn.evaluation import Trained
from disentune.learn.image_distances import decoded, doubled, finite_codes, steps_apart, undisturbed
from disentune.learn.plane import Plane
from disentune.maths.gaussian import kl_to_prior
from disentune.maths.randomness import stream

SHOWN, SAMPLE, LATENTS, FRAMES = 8, 256, 10, 8
"""Numbers of shown images, of images to measure the latents with, of traversed latents, and of steps of each."""
FACTORS, VALUES = 6, 40
"""Maximum numbers of matrices, and of values in each."""
LINES, LINE_IMAGES = 6, 120
"""Number of traversals that a matrix is averaged over; fewer if they are long, to limit the images per factor."""
COLUMNS = ("factors", *image_distances.LEVELS)
"""Michlo et al., IJCAI 2023, Figs. 4 and 10: distances of the factor's values, then at each level of the model."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Images are uint8 (..., h, w, c), ready for display, whatever the network's units; for a data set of points these
    arrays are empty, and its points are in `plane`."""

    originals: np.ndarray
    """(n, h, w, c)."""
    reconstructions: np.ndarray
    """(n, h, w, c): decoded means of the originals' posteriors."""
    traversals: np.ndarray
    """(l, frames, h, w, c): decoded from the first original's mean, with one latent moving from the smallest to the
    largest mean of the sample; the most informative latents come first."""
    latents: np.ndarray
    """(l,) int64: the traversed latents."""
    kl: np.ndarray
    """(l,) float32: KL of each to the prior in nats, mean over the sample."""
    spans: np.ndarray
    """(l, 2) float32: where each traversal starts and ends."""
    distances: Mapping[str, np.ndarray]
    """Factor -> float32 (5, v, v), in the order of `COLUMNS`: means over random traversals of the factor."""
    unchanged: np.ndarray | None = None
    """(n, h, w, c): the originals before their data set was manipulated; None for any other data set."""
    two_latents: np.ndarray | None = None
    """(frames, frames, h, w, c): the first original's mean while the first two latents go over their spans, the first
    one from row to row; None unless requested."""
    outside: np.ndarray | None = None
    """(n, h, w, c): images that the law of sampling never draws; None if there are none."""
    outside_reconstructions: np.ndarray | None = None
    """(n, h, w, c): their decoded means."""
    law: np.ndarray | None = None
    """float32 (a, b): probabilities in training of the values of the two factors that depend on each other most; None
    if all are independent."""
    law_factors: np.ndarray | None = None
    """Names of these two factors: of the rows, and of the columns."""
    plane: Plane = field(default_factory=plane.empty)
    """Data, codes and reconstructions, if there are two latents or the data are points in the plane."""


_OPTIONAL = ("unchanged", "two_latents", "outside", "outside_reconstructions", "law", "law_factors")
_ARRAYS = [one.name for one in fields(Pictures) if one.name not in ("distances", "plane", *_OPTIONAL)]
Order = Literal["kl", "variance"]


# ---- drawing


@torch.no_grad()
def drawn(trained: Trained, seed: int = 0, order: Order = "kl", two_latents: bool = False) -> Pictures:
    """Another `seed` shows other images; `order` says which latents come first. Raises DataError if the model's output
    is not finite."""
    with undisturbed(trained.model):
        rng, known = stream(seed, "pictures"), trained.known
        indices = _sample(trained, rng)
        x = trained.images(indices)
        q = finite_codes(trained, x, indices)
        kl = kl_to_prior(doubled(q)).mean(dim=0)
        ranks = -kl if order == "kl" else doubled(q).logvar.exp().mean(dim=0)
        latents = torch.argsort(ranks, stable=True)[:LATENTS]
        spans = torch.stack([q.mean.amin(dim=0), q.mean.amax(dim=0)], dim=1)[latents]
        paths = [_path(trained, q.mean[:, latent], span) for latent, span in zip(latents, spans, strict=True)]
        shown = SHOWN if _has_pixels(trained) else 0
        return Pictures(
            originals=pixels(trained, x[:shown]),
            reconstructions=pixels(trained, decoded(trained, q.mean[:shown])),
            traversals=_traversals(trained, q.mean[:shown], latents, paths),
            latents=latents.cpu().numpy(),
            kl=kl[latents].float().cpu().numpy(),
            spans=spans.cpu().numpy(),
            distances={
                known.names[factor]: _distances(trained, factor, stream(seed, f"pictures/{known.names[factor]}"))
                for factor in _longest(known)
            },
            unchanged=_unchanged(trained, indices[:shown]),
            two_latents=_two_latents(trained, q.mean[:shown], latents, paths) if two_latents else None,
            plane=plane.drawn(trained, seed),
            **(_of_law(trained, stream(seed, "pictures/outside"), shown) if trained.sampling else {}),
        )


def _sample(trained: Trained, rng: np.random.Generator) -> np.ndarray:
    """Distinct images that training may draw."""
    drawn = trained.sampling
    if drawn is None:
        size = len(trained.known)
        return rng.choice(size, min(SAMPLE, size), replace=False)
    shares = drawn.weights[drawn.inside] / drawn.weights.sum()
    return rng.choice(drawn.inside, min(SAMPLE, drawn.count), replace=False, p=shares)


def _of_law(trained: Trained, rng: np.random.Generator, shown: int) -> dict[str, np.ndarray]:
    """What the law of sampling changes: which images are never drawn, and which factors depend on each other."""
    assert trained.sampling is not None
    found: dict[str, np.ndarray] = {}
    outside = trained.sampling.outside
    if len(outside) and shown:
        indices = rng.choice(outside, min(shown, len(outside)), replace=False)
        x = trained.images(indices)
        found["outside"] = pixels(trained, x)
        found["outside_reconstructions"] = pixels(trained, decoded(trained, finite_codes(trained, x, indices).mean))
    strongest = next(iter(trained.sampling.dependences), None)
    if strongest:
        rows, columns = (trained.sampling.names.index(name) for name in strongest)
        table = trained.sampling.table(rows, columns).astype(np.float32)
        found["law"], found["law_factors"] = _thinned(table), np.array(strongest, np.str_)
    return found


def _thinned(table: np.ndarray) -> np.ndarray:
    """At most `VALUES` rows and columns, evenly chosen."""
    rows, columns = (np.linspace(0, size - 1, min(size, VALUES)).round().astype(np.int64) for size in table.shape)
    found: np.ndarray = table[np.ix_(rows, columns)]
    return found


def _has_pixels(trained: Trained) -> bool:
    return trained.images.data.images(np.arange(1)).dtype == np.uint8


def pixels(trained: Trained, x: Tensor) -> np.ndarray:
    """Images in the network's units as uint8 (n, h, w, c), with the transform undone."""
    unit = x.to(trained.images.mean) * trained.images.std + trained.images.mean
    return unit.clamp(0, 1).mul(255).round().byte().permute(0, 2, 3, 1).cpu().numpy()


def _unchanged(trained: Trained, indices: np.ndarray) -> np.ndarray | None:
    """The same images in the data set that a manipulated one was made from."""
    before = getattr(trained.images.data, "original", None)
    return None if before is None else np.ascontiguousarray(before.images(indices).transpose(0, 2, 3, 1))


def _path(trained: Trained, codes: Tensor, span: Tensor) -> Tensor:
    """Values of a latent from the smallest to the largest of its codes (n,); those nearest to them that occur, if codes
    are discrete."""
    steps = torch.lerp(span[0], span[1], torch.linspace(0, 1, FRAMES, device=span.device))
    if not trained.discrete:
        return steps
    values = codes.unique()
    found: Tensor = values[(steps[:, None] - values).abs().argmin(dim=1)]
    return found


def _two_latents(trained: Trained, bases: Tensor, latents: Tensor, paths: Sequence[Tensor]) -> np.ndarray | None:
    if not len(bases) or len(latents) < 2:
        return None
    z = bases[0].repeat(FRAMES, FRAMES, 1)
    z[..., latents[0]] = paths[0][:, None]
    z[..., latents[1]] = paths[1][None]
    frames = pixels(trained, decoded(trained, z.flatten(0, 1)))
    return frames.reshape(FRAMES, FRAMES, *frames.shape[1:])


def _traversals(trained: Trained, bases: Tensor, latents: Tensor, paths: Sequence[Tensor]) -> np.ndarray:
    channels, height, width = trained.images.data.shape
    if not len(bases):
        return np.empty((0, FRAMES, height, width, channels), np.uint8)
    z = bases[0].repeat(len(latents), FRAMES, 1)
    for row, latent in enumerate(latents.tolist()):
        z[row, :, latent] = paths[row]
    frames = pixels(trained, decoded(trained, z.flatten(0, 1)))
    return frames.reshape(len(latents), FRAMES, height, width, channels)


# ---- distances along factors


def _longest(grid: FactorGrid | FactorTable) -> list[int]:
    """The factors with the most values, in the data set's order, without those of one value; a table has no lines."""
    if isinstance(grid, FactorTable):
        return []
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
"""Limits for unpacked sizes and counts, because files come from a folder that others may write to."""


def to_bytes(pictures: Pictures) -> bytes:
    """A compressed NPZ file; equal pictures give equal bytes, because it contains no dates."""
    arrays = {name: getattr(pictures, name) for name in _ARRAYS}
    arrays |= {name: array for name in _OPTIONAL if (array := getattr(pictures, name)) is not None}
    arrays |= {f"distances_{place}": matrix for place, matrix in enumerate(pictures.distances.values())}
    arrays["factors"] = np.array(list(pictures.distances), np.str_)
    if len(pictures.plane):
        arrays |= {f"plane_{name}": getattr(pictures.plane, name) for name in plane.NAMES}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, array, allow_pickle=False)
            # `savez_compressed` compresses more: 5 % smaller files, but 25 % more time for drawing everything.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), entry.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=1)
    return buffer.getvalue()


def from_bytes(data: bytes) -> Pictures:
    """Raises DataError if the bytes were not made by `to_bytes`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                raise DataError(f"it would unpack to more than {MOST_BYTES:,} bytes")
            if archive.testzip() is not None:
                raise DataError("a checksum differs")
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            factors = [str(name) for name in file["factors"]]
            distances = {name: file[f"distances_{place}"] for place, name in enumerate(factors)}
            names = [*_ARRAYS, *(name for name in _OPTIONAL if name in file)]
            arrays = {name: file[name] for name in names}
            pictures = Pictures(distances=distances, plane=_plane_in(file), **arrays)
        _assert_shapes(pictures)
        plane.refuse_misshapen(pictures.plane)
        "".join(factors).encode()  # raises for lone surrogates
    except Exception as error:  # a damaged archive can fail in many ways
        raise DataError(f"not a file of pictures, or damaged: {type(error).__name__}: {error}") from None
    return pictures


def _plane_in(file: Mapping[str, np.ndarray]) -> Plane:
    """Files of other models have none."""
    return Plane(**{name: file[f"plane_{name}"] for name in plane.NAMES}) if "plane_labels" in file else plane.empty()


def _assert_shapes(pictures: Pictures) -> None:
    images, frames, matrices = pictures.originals, pictures.traversals, pictures.distances.values()
    rows = len(pictures.latents)
    unchanged, square = pictures.unchanged, pictures.two_latents
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
        and (unchanged is None or (unchanged.shape, unchanged.dtype) == (images.shape, np.uint8))
        and (square is None or (square.ndim, square.shape[2:], square.dtype) == (5, images.shape[1:], np.uint8))
        and (square is None or 0 < max(square.shape[:2]) <= MOST_SHOWN)
        and _is_sound_law(pictures)
    )
    if not sound:
        raise DataError("its shapes do not fit together")


def _is_sound_law(pictures: Pictures) -> bool:
    outside, again, law, names = (
        pictures.outside, pictures.outside_reconstructions, pictures.law, pictures.law_factors
    )  # fmt: skip
    if (outside is None) != (again is None) or (law is None) != (names is None):
        return False
    shape = pictures.originals.shape[1:]
    images = [one for one in (outside, again) if one is not None]
    tables = [] if law is None or names is None else [(law, names)]
    are_images = (
        one.dtype == np.uint8 and one.shape[1:] == shape and 0 < len(one) <= MOST_SHOWN for one in images
    )  # fmt: skip
    are_tables = (
        (table.dtype.kind, table.ndim, factors.dtype.kind, factors.shape) == ("f", 2, "U", (2,))
        and all(0 < side <= MOST_SHOWN for side in table.shape)
        for table, factors in tables
    )
    return all(are_images) and all(are_tables)


# ---- as images

SIDE = 64
"""Approximate size in pixels to which small images are enlarged."""
GAP, MARGIN, LINE = 4, 8, 14
"""Pixels between images, around text, and per line of text."""
LAW_SIDE = 192
"""Pixels of the table of a law."""
Sheet = Literal["reconstructions", "outside", "traversals", "distances", "law", "plane"]


def sheets(pictures: Pictures) -> dict[Sheet, np.ndarray]:
    """Images ready to show, uint8 (h, w, 3): `reconstructions` below their originals, `traversals` with one row per
    latent, `distances` with one row per factor, each panel with its own scale, `plane` with the points of data, codes
    and reconstructions; `outside` with reconstructions of images that training never draws, and `law` with how often it
    draws the values of two factors together. Empty ones are left out."""
    found: dict[Sheet, np.ndarray] = {}
    if len(pictures.originals):
        both = np.stack([pictures.originals, pictures.reconstructions])
        found["reconstructions"] = _labelled(mosaic(both), ["image", "decoded"], [])
    if pictures.outside is not None and pictures.outside_reconstructions is not None:
        both = np.stack([pictures.outside, pictures.outside_reconstructions])
        found["outside"] = _labelled(mosaic(both), ["never drawn", "decoded"], [])
    if len(pictures.traversals):
        found["traversals"] = _labelled(mosaic(pictures.traversals), latent_labels(pictures), [])
    if pictures.distances:
        found["distances"] = _labelled(mosaic(_panels(pictures)), list(pictures.distances), COLUMNS)
    if pictures.law is not None and pictures.law_factors is not None:
        rows, columns = map(str, pictures.law_factors)
        panel = _shades()[_levels(_resized(pictures.law, LAW_SIDE))]
        found["law"] = _labelled(mosaic(panel[None, None]), [rows], [columns])
    if len(pictures.plane):
        panels = _plane_panels(pictures.plane)
        found["plane"] = _labelled(mosaic(np.array([[*panels.values()]])), [""], [*panels])
    return found


FRAME_MS = 150
"""How long a frame of an animation is shown."""


def animation(pictures: Pictures) -> bytes:
    """Traversals as a GIF that plays to their end and back: all latents move at once, each in its own panel with its
    label. Empty if nothing was traversed."""
    from PIL import Image

    if not len(pictures.traversals):
        return b""
    rows = pictures.traversals.swapaxes(0, 1)  # (frames, l, h, w, c)
    there = [_labelled(mosaic(panels[:, None]), latent_labels(pictures), []) for panels in rows]
    first, *others = [Image.fromarray(sheet) for sheet in [*there, *there[-2:0:-1]]]
    file = io.BytesIO()
    first.save(file, format="GIF", save_all=True, append_images=others, duration=FRAME_MS, loop=0)
    return file.getvalue()


def latent_labels(pictures: Pictures) -> list[str]:
    """The latent of each row of traversals, with its KL in nats."""
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
    """(..., 3): grey images as they look; otherwise the first three channels are red, green and blue."""
    if images.shape[-1] == 1:
        return images.repeat(3, axis=-1)
    missing = max(0, 3 - images.shape[-1])
    return np.pad(images[..., :3], [(0, 0)] * (images.ndim - 1) + [(0, missing)])


def _enlarged(images: np.ndarray, side: int) -> np.ndarray:
    """Enlarges by a whole factor, so that each pixel becomes a square."""
    times = max(1, side // max(images.shape[-3:-1]))
    return images.repeat(times, axis=-3).repeat(times, axis=-2)


def _panels(pictures: Pictures) -> np.ndarray:
    """(factors, columns, h, w, 3): matrices of all sizes as squares of the same size."""
    side = max(SIDE, max(stack.shape[-1] for stack in pictures.distances.values()))
    panels = [[_shades()[_levels(_resized(matrix, side))] for matrix in stack] for stack in pictures.distances.values()]
    return np.array(panels)


PLANE_SIDE, DOT = 192, 2
"""Pixels of a panel of points, and to each side of a point."""
DOTS = np.array([[0, 114, 178], [213, 94, 0], [0, 158, 115], [204, 121, 167], [230, 159, 0], [86, 180, 233]], np.uint8)


def _plane_panels(shown: Plane) -> dict[str, np.ndarray]:
    """uint8 (h, w, 3) by name: data and reconstructions in one frame, codes over their density."""
    found = {}
    if len(shown.points):
        both = np.concatenate([shown.points, shown.decoded])
        frame = np.stack([both.min(axis=0), both.max(axis=0)]).astype(np.float64)
        white = np.full((PLANE_SIDE, PLANE_SIDE, 3), 255, np.uint8)
        found["data"] = _dotted(white, shown.points, shown.labels, frame)
    if len(shown.means):
        density = np.minimum(plane.aggregate_density(shown), float(shown.prior.max()) or 1.0)
        shaded = _shades()[_levels(_resized(density, PLANE_SIDE))][::-1]
        square = np.array([[-plane.REACH] * 2, [plane.REACH] * 2])
        found["codes"] = _dotted(shaded, shown.means, shown.labels, square)
    if len(shown.points):
        found["decoded"] = _dotted(white, shown.decoded, shown.labels, frame)
    return found


def _dotted(image: np.ndarray, points: np.ndarray, labels: np.ndarray, frame: np.ndarray) -> np.ndarray:
    """With a square for each point that lies inside the frame (2, 2): its least and its largest coordinates."""
    image, side = image.copy(), len(image) - 1
    share = (points.astype(np.float64) - frame[0]) / np.where(frame[1] > frame[0], frame[1] - frame[0], 1.0)
    inside = ((share >= 0) & (share <= 1)).all(axis=1)
    for (across, up), label in zip((share[inside] * side).round().astype(int), labels[inside], strict=True):
        row, column = side - up, across
        image[max(row - DOT, 0) : row + DOT, max(column - DOT, 0) : column + DOT] = DOTS[label % len(DOTS)]
    return image


def _resized(matrix: np.ndarray, side: int) -> np.ndarray:
    nearest = np.arange(side) * len(matrix) // side
    return matrix[np.ix_(nearest, nearest)]


def _levels(matrix: np.ndarray) -> np.ndarray:
    """0 to 255, from the smallest to the largest finite number; all 0 if they are equal."""
    finite = matrix[np.isfinite(matrix)].astype(np.float64)
    low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 0.0)
    share = (np.nan_to_num(matrix.astype(np.float64), nan=low, posinf=high, neginf=low) - low) / ((high - low) or 1.0)
    return np.round(255 * share).astype(np.uint8)


@lru_cache(maxsize=1)
def _shades() -> np.ndarray:
    """uint8 (256, 3): from dark blue to light yellow with uniform perceived lightness, a straight line in Oklab
    (Ottosson 2020), which also works for colour-blind readers."""
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
    """On white, with a name to the left of each row and above each column."""
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
