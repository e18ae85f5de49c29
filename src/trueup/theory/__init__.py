"""Published results on the errors of reconciliation, computed from noise laws alone.

Every function states its theorem. They follow Zhu, Van Hentenryck and Fioretto (2021), "Bias and variance of
post-processing in differential privacy", and say where a result holds for more laws, or for weighted
least squares. Those on lattices follow Dharangutte, Gao, Gong and Yu (2023), and are asymptotic.
"""

from trueup.theory.bias import (
    RegionEnds,
    bias_bound,
    error_operator,
    nonnegative_bias_bound,
    projection_bias,
    projection_covariance,
    region,
)
from trueup.theory.limits import (
    LatticeShape,
    ball_probability,
    gaussian_tail,
    kolmogorov,
    l2_laplace_tail,
    outside_probability,
    points_in_ball,
    variance_limit,
    wasserstein,
    wasserstein_bound,
)
from trueup.theory.marginal import (
    MarginalError,
    characteristic,
    projected_error,
    projected_variances,
    weighted_error,
)

__all__ = [
    "LatticeShape",
    "MarginalError",
    "RegionEnds",
    "ball_probability",
    "bias_bound",
    "characteristic",
    "error_operator",
    "gaussian_tail",
    "kolmogorov",
    "l2_laplace_tail",
    "nonnegative_bias_bound",
    "outside_probability",
    "points_in_ball",
    "projected_error",
    "projected_variances",
    "projection_bias",
    "projection_covariance",
    "region",
    "variance_limit",
    "wasserstein",
    "wasserstein_bound",
    "weighted_error",
]
