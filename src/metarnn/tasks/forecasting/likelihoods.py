"""What is forecast: a number, quantiles, or a distribution; its loss, its quantiles, its CRPS."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from metarnn.cells import check

LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)


class Likelihood(Protocol):
    """`size` numbers a value, the last dimension of `p`, say what it may be."""

    size: int

    def parameters(self, raw: Tensor) -> Tensor:
        """p of any numbers, [..., size]."""
        ...

    def moved(self, p: Tensor, by: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        """The p of scale · y + by."""
        ...

    def loss(self, p: Tensor, y: Tensor) -> Tensor: ...

    def mean(self, p: Tensor) -> Tensor:
        """The point to report; of the absolute error, a median."""
        ...

    def quantile(self, p: Tensor, level: float) -> Tensor: ...

    def crps(self, p: Tensor, y: Tensor) -> Tensor:
        """∫ (F(x) - 1[x ≥ y])² dx, which for a point is |y - x|."""
        ...

    def sample(self, p: Tensor) -> Tensor:
        """A number drawn; of a point, itself."""
        ...


class Point:
    """The number itself, by its squared or absolute error."""

    size = 1

    def __init__(self, absolute: bool = False) -> None:
        self.absolute = absolute

    def parameters(self, raw: Tensor) -> Tensor:
        return raw

    def moved(self, p: Tensor, by: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        return _affine(p, by, scale)

    def loss(self, p: Tensor, y: Tensor) -> Tensor:
        gap = p[..., 0] - y
        return gap.abs() if self.absolute else gap.square()

    def mean(self, p: Tensor) -> Tensor:
        return p[..., 0]

    def quantile(self, p: Tensor, level: float) -> Tensor:
        return p[..., 0]

    def crps(self, p: Tensor, y: Tensor) -> Tensor:
        return (p[..., 0] - y).abs()

    def sample(self, p: Tensor) -> Tensor:
        return p[..., 0]


class Quantiles:
    """Quantiles at LEVELS, which never cross, by the pinball loss; and by the squared error the
    mean, which of what is skewed is not the median."""

    size = len(LEVELS) + 1

    def parameters(self, raw: Tensor) -> Tensor:
        middle = len(LEVELS) // 2
        down, centre, up, mean = raw.split([middle, 1, middle, 1], -1)
        up = F.softplus(up).cumsum(-1)
        down = F.softplus(down).flip(-1).cumsum(-1).flip(-1)
        # Five steps of softplus(0) either way would start far wider than scaled numbers are.
        return torch.cat([centre - 0.4 * down, centre, centre + 0.4 * up, mean], -1)

    def moved(self, p: Tensor, by: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        return _affine(p, by, scale)

    def loss(self, p: Tensor, y: Tensor) -> Tensor:
        return self.crps(p, y) + (self.mean(p) - y).square()

    def mean(self, p: Tensor) -> Tensor:
        return p[..., -1]

    def quantile(self, p: Tensor, level: float) -> Tensor:
        """Between two levels there are, interpolated; beyond them the outermost."""
        k = min(max(sum(q <= level for q in LEVELS), 1), len(LEVELS) - 1)
        low, high = LEVELS[k - 1], LEVELS[k]
        share = min(max((level - low) / (high - low), 0.0), 1.0)
        return torch.lerp(p[..., k - 1], p[..., k], share)

    def crps(self, p: Tensor, y: Tensor) -> Tensor:
        """Approximately, by the levels there are: 2 · the mean pinball loss."""
        level = p.new_tensor(LEVELS)
        gap = y.unsqueeze(-1) - p[..., :-1]
        return 2 * torch.maximum(level * gap, (level - 1) * gap).mean(-1)

    def sample(self, p: Tensor) -> Tensor:
        raise NotImplementedError("quantiles are not drawn from")


class Gaussian:
    """A normal distribution: μ, σ."""

    size = 2

    def parameters(self, raw: Tensor) -> Tensor:
        return torch.stack([raw[..., 0], F.softplus(raw[..., 1]) + 1e-4], -1)

    def moved(self, p: Tensor, by: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        return torch.stack([p[..., 0] * scale + by, p[..., 1] * scale], -1)

    def loss(self, p: Tensor, y: Tensor) -> Tensor:
        mu, sigma = p.unbind(-1)
        return sigma.log() + 0.5 * ((y - mu) / sigma).square() + 0.5 * math.log(2 * math.pi)

    def mean(self, p: Tensor) -> Tensor:
        return p[..., 0]

    def quantile(self, p: Tensor, level: float) -> Tensor:
        mu, sigma = p.unbind(-1)
        return mu + sigma * math.sqrt(2) * torch.erfinv(p.new_tensor(2 * level - 1))

    def crps(self, p: Tensor, y: Tensor) -> Tensor:
        """σ (z (2Φ(z) - 1) + 2φ(z) - 1/√π) (Gneiting & Raftery 2007)."""
        mu, sigma = p.unbind(-1)
        z = (y - mu) / sigma
        phi = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
        return sigma * (z * torch.erf(z / math.sqrt(2)) + 2 * phi - 1 / math.sqrt(math.pi))

    def sample(self, p: Tensor) -> Tensor:
        mu, sigma = p.unbind(-1)
        return mu + sigma * torch.randn_like(mu)


class StudentT:
    """Student's t, for what has outliers: μ, σ, ν > 2."""

    size = 3

    def parameters(self, raw: Tensor) -> Tensor:
        sigma, nu = F.softplus(raw[..., 1]) + 1e-4, F.softplus(raw[..., 2]) + 2.01
        return torch.stack([raw[..., 0], sigma, nu], -1)

    def moved(self, p: Tensor, by: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        return torch.stack([p[..., 0] * scale + by, p[..., 1] * scale, p[..., 2]], -1)

    def _distribution(self, p: Tensor) -> torch.distributions.StudentT:
        mu, sigma, nu = p.unbind(-1)
        return torch.distributions.StudentT(nu, mu, sigma, validate_args=False)

    def loss(self, p: Tensor, y: Tensor) -> Tensor:
        return -self._distribution(p).log_prob(y)

    def mean(self, p: Tensor) -> Tensor:
        return p[..., 0]

    def quantile(self, p: Tensor, level: float) -> Tensor:
        """By Newton's method on the distribution function, from the normal quantile on."""
        mu, sigma, nu = p.double().unbind(-1)
        unit = torch.distributions.StudentT(nu, validate_args=False)
        z = math.sqrt(2) * torch.erfinv(torch.full_like(nu, 2 * level - 1))
        for _ in range(8):
            z = z - (student_cdf(z, nu) - level) / unit.log_prob(z).exp()
        return (mu + sigma * z).to(p.dtype)

    def crps(self, p: Tensor, y: Tensor) -> Tensor:
        """In closed form (Jordan, Krüger & Lerch 2019)."""
        mu, sigma, nu = p.double().unbind(-1)
        z = (y.double() - mu) / sigma
        f = torch.distributions.StudentT(nu, validate_args=False).log_prob(z).exp()
        half = nu.new_tensor(0.5)
        spread = (_log_beta(half, nu - 0.5) - 2 * _log_beta(half, nu / 2)).exp()
        rest = 2 * f * (nu + z.square()) / (nu - 1) - 2 * nu.sqrt() / (nu - 1) * spread
        return (sigma * (z * (2 * student_cdf(z, nu) - 1) + rest)).to(p.dtype)

    def sample(self, p: Tensor) -> Tensor:
        return self._distribution(p).sample()


def _affine(p: Tensor, by: Tensor, scale: Tensor | float) -> Tensor:
    scale = scale.unsqueeze(-1) if isinstance(scale, Tensor) else scale
    return p * scale + by.unsqueeze(-1)


def student_cdf(z: Tensor, nu: Tensor) -> Tensor:
    """P(T ≤ z) = 1 - ½ I_{ν/(ν+z²)}(ν/2, ½) for z ≥ 0."""
    tail = 0.5 * incomplete_beta(nu / 2, torch.full_like(nu, 0.5), nu / (nu + z.square()))
    return torch.where(z >= 0, 1 - tail, tail)


def incomplete_beta(a: Tensor, b: Tensor, x: Tensor) -> Tensor:
    """The regularised I_x(a, b), by its continued fraction (Lentz's method)."""
    mirrored = x > (a + 1) / (a + b + 2)  # there the fraction of the other tail converges fast
    a, b = torch.where(mirrored, b, a), torch.where(mirrored, a, b)
    x = torch.where(mirrored, 1 - x, x).clamp(0, 1)
    tiny = 1e-300
    front = (a * (x + tiny).log() + b * (1 - x + tiny).log() - _log_beta(a, b)).exp() / a
    c = torch.ones_like(x)
    d = 1 / _away(1 - (a + b) * x / (a + 1), tiny)
    total = d
    for m in range(1, 30):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d, c = 1 / _away(1 + even * d, tiny), _away(1 + even / c, tiny)
        total = total * d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d, c = 1 / _away(1 + odd * d, tiny), _away(1 + odd / c, tiny)
        total = total * d * c
    found = front * total
    return torch.where(mirrored, 1 - found, found)


def _away(x: Tensor, tiny: float) -> Tensor:
    return torch.where(x.abs() < tiny, torch.full_like(x, tiny), x)


def _log_beta(a: Tensor, b: Tensor) -> Tensor:
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


LIKELIHOODS = ("mse", "mae", "quantiles", "gaussian", "student")


def likelihood(name: str) -> Likelihood:
    """By its name: mse, mae, quantiles, gaussian or student."""
    check.one_of("likelihood", name, LIKELIHOODS)
    if name in ("mse", "mae"):
        return Point(absolute=name == "mae")
    return {"quantiles": Quantiles, "gaussian": Gaussian, "student": StudentT}[name]()
