"""Priors against torch.distributions, scipy and numerical integration, in float64."""

import math

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from scipy import stats
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal, kl_divergence
from torch.distributions import StudentT as TorchStudentT

from disentune.frameworks.priors import (
    Anisotropic,
    AnisotropicLaw,
    Isotropic,
    Mixture,
    Prior,
    SpikeAndSlab,
    StudentT,
    principal_variances,
    sampled_kl,
)
from disentune.maths.gaussian import sample
from disentune.plugin import Context, Posterior

CENTRES = torch.tensor([[0.0, -1.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
LOGITS = torch.tensor([0.3, -1.2], dtype=torch.float64)
SHARES = torch.tensor([1 / (1 + math.exp(-1.5)), 1 / (1 + math.exp(1.5))], dtype=torch.float64)  # softmax by hand


def unit(value):
    return torch.full((2,), value, dtype=torch.float64)


def spike_and_slab(share, spike):
    weights = torch.tensor([[1 - share, share]] * 2, dtype=torch.float64)
    deviations = torch.tensor([[1.0, spike]] * 2, dtype=torch.float64)
    return MixtureSameFamily(Categorical(weights), Normal(torch.zeros_like(deviations), deviations))


LAWS = {
    "isotropic": (Isotropic(scale=2.5), Independent(Normal(unit(0.0), unit(math.sqrt(2.5))), 1)),
    "anisotropic": (
        AnisotropicLaw(LOGITS, 3.0, learned=True).double(),
        Independent(Normal(unit(0.0), (3 * 2 * SHARES).sqrt()), 1),
    ),
    "student_t": (StudentT(nu=3, scale=2), Independent(TorchStudentT(unit(3.0), 0.0, math.sqrt(2)), 1)),
    "mixture": (
        Mixture(),
        MixtureSameFamily(
            Categorical(torch.ones(4).double()),
            Independent(Normal(CENTRES, math.sqrt(0.03) * torch.ones_like(CENTRES)), 1),
        ),
    ),
    "spike_and_slab": (SpikeAndSlab(share=0.8), Independent(spike_and_slab(0.8, 0.05), 1)),
}


@pytest.fixture(params=LAWS)
def law(request):
    return LAWS[request.param][0]


@pytest.fixture(params=LAWS)
def law_and_torch(request):
    return LAWS[request.param]


def codes(n=50, d=2, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, d)))


def posterior(mean, deviation, n):
    mean, deviation = (torch.tensor(values, dtype=torch.float64).expand(n, -1) for values in (mean, deviation))
    return Posterior(mean, 2 * deviation.log())


# ---- densities


def test_log_densities_agree_with_torch(law_and_torch):
    ours, theirs = law_and_torch
    assert ours.log_density(codes()).shape == (50,)
    torch.testing.assert_close(ours.log_density(codes()), theirs.log_prob(codes()), rtol=1e-5, atol=1e-6)  # f32 logits


@torch.no_grad()
def test_densities_integrate_to_one(law):
    """By trapezia that are narrow around 0, where the spike is, and reach 4,000, beyond which Student's t has 1e-10."""
    t = torch.linspace(-9, 9, 601, dtype=torch.float64)
    width = torch.cosh(t) * (t[1] - t[0])
    density = law.log_density(torch.cartesian_prod(torch.sinh(t), torch.sinh(t))).exp().reshape(601, 601)
    assert (width @ density @ width).item() == pytest.approx(1, abs=1e-6)  # f32 logits


@pytest.mark.parametrize(("share", "deviation"), [(0, 1.0), (1, 0.2)])
def test_a_spike_and_slab_of_one_part_is_that_normal_in_value_and_gradient(share, deviation):
    ours, theirs = codes().requires_grad_(), codes().requires_grad_()
    density = SpikeAndSlab(share=share, spike=0.2).log_density(ours)
    expected = Isotropic(scale=deviation**2).log_density(theirs)
    density.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(density, expected)
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_a_spike_and_slab_is_finite_far_from_both_parts():
    z = torch.tensor([[0.0, 1e3]]).requires_grad_()
    density = SpikeAndSlab(share=0.5).log_density(z)
    density.sum().backward()
    assert density.isfinite().all()
    assert z.grad.tolist() == [[0.0, -1e3]]  # out there the slab alone: d/dz of -z^2 / 2


@pytest.mark.parametrize("nu", [1e6, 1e12])
def test_students_t_of_many_degrees_of_freedom_is_normal(nu):
    expected = Isotropic(scale=0.7).log_density(codes())
    torch.testing.assert_close(StudentT(nu=nu, scale=0.7).log_density(codes()), expected, rtol=0, atol=1e-4 * 1e6 / nu)


def test_students_t_of_one_degree_of_freedom_is_cauchys_law():
    """1 / (pi (1 + z^2)) at 0 and 1."""
    z = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    expected = [-math.log(math.pi), -math.log(2 * math.pi)]
    assert StudentT(nu=1).log_density(z).tolist() == pytest.approx(expected)


def test_the_mixtures_density_is_that_of_both_latents_together():
    """At a centre only its own Gaussian counts: log(1/4) - log(2 pi 0.03), one number for the two latents."""
    expected = -math.log(4) - math.log(2 * math.pi * 0.03)
    assert Mixture().log_density(CENTRES).tolist() == pytest.approx([expected] * 4)


def test_only_the_round_prior_cannot_tell_a_rotation():
    angle = math.pi / 6
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64)
    for name, (law, _) in LAWS.items():
        same = torch.allclose(law.log_density(codes() @ turn.T), law.log_density(codes()))
        assert same == (name == "isotropic")


# ---- KL


@pytest.mark.parametrize("name", ["isotropic", "anisotropic"])
def test_closed_kls_agree_with_torch_in_nats_an_image(name):
    ours, theirs = LAWS[name]
    q = Posterior(codes(7, seed=1), codes(7, seed=2))
    each = kl_divergence(Independent(Normal(q.mean, torch.exp(q.logvar / 2)), 1), theirs.expand([7]))
    torch.testing.assert_close(ours.kl(q, codes(7)), each.mean(), rtol=1e-6, atol=0)  # f32 logits


def integrated_kl(law, mean, deviation):
    """Integral of q log(q / p) over a grid of 10 deviations around the mean, far finer than it needs."""
    pairs = zip(mean, deviation, strict=True)
    axes = [torch.linspace(m - 10 * s, m + 10 * s, 801, dtype=torch.float64) for m, s in pairs]
    z = torch.cartesian_prod(*axes)
    q = Normal(*(torch.tensor(values, dtype=torch.float64) for values in (mean, deviation)))
    log_q = q.log_prob(z).sum(dim=1)
    cell = math.prod(20 * s / 800 for s in deviation)
    return ((log_q - law.log_density(z)) * log_q.exp()).sum().item() * cell


@torch.no_grad()
@pytest.mark.parametrize(("mean", "deviation"), [((0.3, -0.9), (0.2, 0.1)), ((0.0, 0.05), (0.5, 0.03))])
def test_a_sampled_kl_has_the_integral_as_its_mean(law, mean, deviation):
    draws = 100_000
    q = posterior(mean, deviation, draws)
    z = sample(q, np.random.default_rng(0))
    each = torch.stack([Normal(q.mean, torch.exp(q.logvar / 2)).log_prob(z).sum(dim=1), -law.log_density(z)]).sum(dim=0)
    error = each.std().item() / math.sqrt(draws)
    assert sampled_kl(q, z, law.log_density(z)).item() == pytest.approx(each.mean().item())
    assert law.kl(q, z).item() == pytest.approx(integrated_kl(law, mean, deviation), abs=4 * error + 1e-9)
    assert error < 0.05


def test_a_posterior_on_one_cluster_has_a_kl_of_log_four():
    """log q - log p = log 4 at every draw, since the other clusters are 8 deviations away; were log p counted once a
    latent, the draws would differ."""
    q = posterior((0.0, 1.0), (math.sqrt(0.03),) * 2, 20)
    z = sample(q, np.random.default_rng(0))
    assert Mixture().kl(q, z).item() == pytest.approx(math.log(4), abs=1e-6)
    assert Mixture().kl(posterior((0.0, 1.0), (math.sqrt(0.03),) * 2, 1), z[:1]).item() == pytest.approx(math.log(4))


def test_a_sampled_kl_moves_the_posterior_as_the_closed_one_does_on_average():
    """Gradients are unbiased too, because the code moves with the posterior's mean and spread."""
    draws = 200_000
    grads = []
    for kl in (lambda q, z: Isotropic().kl(q, z), lambda q, z: sampled_kl(q, z, Isotropic().log_density(z))):
        mean = torch.tensor([[0.8, -0.4]], dtype=torch.float64, requires_grad=True)
        logvar = torch.tensor([[-1.0, 0.5]], dtype=torch.float64, requires_grad=True)
        q = Posterior(mean.expand(draws, -1), logvar.expand(draws, -1))
        kl(q, sample(q, np.random.default_rng(0))).backward()
        grads.append(torch.cat([mean.grad, logvar.grad]))
    torch.testing.assert_close(*grads, rtol=0, atol=4 * 2 / math.sqrt(draws))  # a draw's gradient deviates below 2


# ---- samples


MARGINALS = {
    "isotropic": [stats.norm(0, math.sqrt(2.5)).cdf] * 2,
    "anisotropic": [stats.norm(0, math.sqrt(6 * share)).cdf for share in SHARES.tolist()],
    "student_t": [stats.t(3, scale=math.sqrt(2)).cdf] * 2,
    "mixture": [lambda z: sum(w * stats.norm(m, math.sqrt(0.03)).cdf(z) for w, m in ((0.25, -1), (0.5, 0), (0.25, 1)))]
    * 2,
    "spike_and_slab": [lambda z: 0.2 * stats.norm.cdf(z) + 0.8 * stats.norm(0, 0.05).cdf(z)] * 2,
}


@torch.no_grad()
@pytest.mark.parametrize("name", LAWS)
def test_samples_follow_the_density(name):
    z = LAWS[name][0].sample(torch.zeros(20_000, 2, dtype=torch.float64), np.random.default_rng(0))
    for column, cdf in zip(z.T.numpy(), MARGINALS[name], strict=True):
        assert stats.kstest(column, cdf).pvalue > 1e-3
    related = stats.spearmanr(*z.abs().T.numpy()).statistic  # how far one latent lies out says nothing of the other
    assert (abs(related) < 4 / math.sqrt(20_000)) == (name != "mixture")


@torch.no_grad()
def test_the_mixtures_samples_lie_around_its_centres_in_equal_numbers():
    z = Mixture(scale=0.02).sample(torch.zeros(20_000, 2, dtype=torch.float64), np.random.default_rng(0))
    squares, nearest = (z[:, None] - CENTRES).square().sum(dim=2).min(dim=1)
    assert stats.kstest(squares.numpy() / 0.02, stats.chi2(2).cdf).pvalue > 1e-3
    counts = torch.bincount(nearest, minlength=4)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_every_precision_sees_the_same_draw(law):
    double, single = (
        law.sample(torch.zeros(9, 2, dtype=dtype), np.random.default_rng(3)) for dtype in (torch.float64, torch.float32)
    )
    if not isinstance(law, AnisotropicLaw):  # whose own precision decides
        assert (double.dtype, single.dtype) == (torch.float64, torch.float32)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-6)
    assert double.unique().numel() == 18


def test_samples_move_with_the_learned_variances():
    """d log(deviation_d) / d logit_e is (1[d = e] - share_e) / 2."""
    law = AnisotropicLaw(LOGITS, 1.0, learned=True).double()
    z = law.sample(torch.zeros(1, 2, dtype=torch.float64), np.random.default_rng(0))
    z[0, 0].backward()
    expected = z[0, 0].detach() * torch.tensor([1 - SHARES[0], -SHARES[1]]) / 2
    torch.testing.assert_close(law.logits.grad, expected, rtol=1e-5, atol=0)  # f32 logits


# ---- variances of the anisotropic prior


def images(n, shape=(2, 3, 4), rank=None, seed=0):
    rng, pixels = np.random.default_rng(seed), math.prod(shape)
    mixing = rng.normal(size=(rank or pixels, pixels)) * np.geomspace(1, 0.05, rank or pixels)[:, None]
    flat = rng.normal(size=(n, rank or pixels)) @ mixing + rng.normal(size=pixels)  # a mean that is not 0
    return torch.from_numpy(flat.reshape(n, *shape))


def looked(x):
    return lambda count: x[:count]


def variances(law):
    return law._normal().logvar.exp()


@pytest.mark.parametrize("n", [9, 24, 100])  # fewer than pixels, as many, more
def test_principal_variances_are_the_squared_singular_values_of_the_images_as_they_are(n):
    x = images(n)
    singular = np.linalg.svd(x.numpy().reshape(n, -1), compute_uv=False)
    torch.testing.assert_close(principal_variances(x), torch.from_numpy(singular**2))


def test_fixed_variances_are_the_components_shares_of_the_latents():
    x = images(100)
    squares = np.linalg.svd(x.numpy().reshape(100, -1), compute_uv=False)[:5] ** 2
    law = Anisotropic(scale=3).law(5, looked(x))
    expected = torch.from_numpy(3 * 5 * squares / squares.sum())
    torch.testing.assert_close(variances(law).double(), expected, rtol=1e-5, atol=0)  # kept in single precision
    assert not list(law.parameters())
    assert list(law.state_dict()) == ["logits"]


def test_as_released_takes_the_eleventh_to_twentieth_component_for_ten_latents():
    x = images(100)
    squares = np.linalg.svd(x.numpy().reshape(100, -1), compute_uv=False)[10:20] ** 2
    law = Anisotropic(take="as_released").law(10, looked(x))
    torch.testing.assert_close(
        variances(law).double(), torch.from_numpy(10 * squares / squares.sum()), rtol=1e-5, atol=0
    )


def test_no_more_images_are_looked_at_than_asked_for():
    x = images(100)
    few, same = Anisotropic(images=30).law(3, looked(x)), Anisotropic().law(3, looked(x[:30]))
    assert torch.equal(few.logits, same.logits)
    assert not torch.equal(few.logits, Anisotropic().law(3, looked(x)).logits)


def test_learned_variances_start_there_and_are_trained():
    fixed, learned = (Anisotropic(learned=learned).law(4, looked(images(50))) for learned in (False, True))
    assert torch.equal(fixed.logits, learned.logits)
    assert [name for name, _ in learned.named_parameters()] == ["logits"]


@pytest.mark.parametrize("scale", [1.0, 0.2])
def test_the_mean_variance_is_the_scale_whatever_is_learned(scale):
    for seed in range(5):
        law = AnisotropicLaw(codes(1, 6, seed)[0] * 10, scale, learned=True).double()
        assert variances(law).mean().item() == pytest.approx(scale)


def test_an_even_spectrum_gives_the_isotropic_prior():
    x = torch.linalg.qr(codes(12, 12))[0].reshape(12, 3, 2, 2)
    law, q, z = Anisotropic(scale=2).law(3, looked(x)).double(), Posterior(codes(5, 3, 1), codes(5, 3, 2)), codes(5, 3)
    torch.testing.assert_close(law.log_density(z), Isotropic(scale=2).log_density(z), rtol=1e-6, atol=0)
    torch.testing.assert_close(law.kl(q, z), Isotropic(scale=2).kl(q, z), rtol=1e-6, atol=0)


def test_images_of_too_few_dimensions_are_refused_by_name():
    x = images(50, rank=3) - images(50, rank=3).mean(dim=0)
    Anisotropic().law(3, looked(x))
    with pytest.raises(ValueError, match="needs 4 principal components, but the 50 images span only 3 dimensions"):
        Anisotropic().law(4, looked(x))


# ---- what is refused before anything runs


def setting(latents=4, shape=(1, 4, 4), sizes=(10, 10)):
    return Context(shape, latents=latents, batch_size=8, factor_sizes=sizes)


def test_components_must_be_as_many_as_latents():
    Anisotropic().check(setting(latents=16))
    for short in (setting(latents=17), setting(latents=12, sizes=(11,))):
        with pytest.raises(ValueError, match=f"prior: anisotropic needs {short.latents} principal components"):
            Anisotropic().check(short)
    with pytest.raises(ValueError, match=r"there are 5 images .*; raise prior\.images, or use fewer latents$"):
        Anisotropic(images=5).check(setting(latents=6))


def test_as_released_needs_twenty_components_and_knows_no_more():
    Anisotropic(take="as_released").check(setting(latents=20, shape=(1, 4, 5)))
    with pytest.raises(ValueError, match=r"needs 20 principal .* there are 16 .* from; use `take: top`"):
        Anisotropic(take="as_released").check(setting(latents=4))
    with pytest.raises(ValueError, match="as_released has 20 components, but there are 21 latents"):
        Anisotropic(take="as_released").check(setting(latents=21, shape=(3, 8, 8)))


def test_the_mixture_needs_two_latents():
    Mixture().check(setting(latents=2))
    for latents in (1, 3):
        with pytest.raises(ValueError, match=f"prior: the mixture lies in 2 latents, but model.latents is {latents}"):
            Mixture().check(setting(latents=latents))


ANY = TypeAdapter(Prior)


def test_a_name_alone_is_enough_where_nothing_else_is_required():
    assert ANY.validate_python("isotropic") == Isotropic()
    assert ANY.validate_python("mixture") == Mixture(scale=0.03)
    assert ANY.validate_python({"name": "spike_and_slab", "share": 0.9}).spike == 0.05
    with pytest.raises(ValueError, match="nu"):
        ANY.validate_python("student_t")
    with pytest.raises(ValueError, match="isotropic"):
        ANY.validate_python("laplace")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("isotropic", "scale", 0.0),
        ("anisotropic", "scale", 0.0),
        ("anisotropic", "images", 1),
        ("anisotropic", "take", "last"),
        ("student_t", "nu", 0.9),
        ("student_t", "scale", 0.0),
        ("mixture", "scale", 0.0),
        ("spike_and_slab", "share", -0.1),
        ("spike_and_slab", "share", 1.1),
        ("spike_and_slab", "spike", 0.0),
    ],
)
def test_numbers_out_of_bounds_are_refused_by_name(name, key, value):
    required = {"student_t": {"nu": 3}, "spike_and_slab": {"share": 0.5}}.get(name, {})
    ANY.validate_python({"name": name, **required})
    with pytest.raises(ValueError, match=key):
        ANY.validate_python({"name": name, **required, key: value})


# ---- the map from Student's t to a normal


@pytest.mark.parametrize("nu", [1, 3, 9, 100])
def test_codes_are_mapped_through_the_distribution_functions_of_both_laws(nu):
    z = np.linspace(-6, 6, 25).reshape(-1, 1)
    expected = stats.norm.ppf(stats.t.cdf(z / math.sqrt(2), nu))
    np.testing.assert_allclose(StudentT(nu=nu, scale=2).to_normal(z), expected, atol=1e-7)


def test_draws_from_the_prior_are_normal_after_the_map():
    draws = StudentT(nu=3, scale=0.5).sample(torch.empty(4000, 1, dtype=torch.float64), np.random.default_rng(0))
    mapped = StudentT(nu=3, scale=0.5).to_normal(draws.numpy())[:, 0]
    assert stats.kstest(mapped, "norm").pvalue > 0.01
    assert stats.kstest(draws.numpy()[:, 0], "norm").pvalue < 1e-6  # and were not before


def test_the_map_keeps_order_and_sign_and_is_finite_far_out():
    z = np.array([[-1e30, -40.0, -1e-3, 0.0, 1e-3, 40.0, 1e30]])
    for nu in (1, 5, 1e6):
        found = StudentT(nu=nu).to_normal(z)
        assert np.isfinite(found).all()
        assert (np.diff(found) >= 0).all()
        np.testing.assert_array_equal(np.sign(found), np.sign(z))
        np.testing.assert_allclose(found, -found[:, ::-1])
