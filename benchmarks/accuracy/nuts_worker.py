"""NumPyro's NUTS for `benchmarks nuts`: the whole posterior of the model, rows and all above them.

The interpreter is that of an environment with NumPyro, so nothing of bayesmf is imported here:
the model is written down a second time, from docs/notation.md and the paper.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

Data = dict[str, np.ndarray]


def make_model(data: Data, D: int, prior: str, noise_by: str | None) -> Any:
    """Ratings given users, items, the parameters of their priors, and precisions of noise."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    bias = prior != "wishart"
    width = D + bias

    def rows(side: str, n: int) -> Any:
        if prior == "gamma":
            ones = jnp.ones(width)
            precision = numpyro.sample(f"lambda_{side}", dist.Gamma(ones, ones).to_event(1))
            each = dist.Normal(0.0, precision**-0.5).to_event(1)
        else:
            factor = numpyro.sample(
                f"factor_{side}", dist.WishartCholesky(float(width), jnp.eye(width))
            )
            Lambda = factor @ factor.T
            mean = numpyro.sample(
                f"mu_{side}", dist.MultivariateNormal(jnp.zeros(width), precision_matrix=2 * Lambda)
            )
            each = dist.MultivariateNormal(mean, precision_matrix=Lambda)
        with numpyro.plate(f"rows_{side}", n):
            return numpyro.sample(side, each)

    def own_noise(side: str, n: int, mean_one: bool) -> tuple[Any, list[Any]]:
        """Precisions of a side's rows, and the reported values: logarithms."""
        spread = numpyro.sample(f"spread_{side}", dist.HalfNormal(1.0))
        shape = spread**-2
        rate = shape if mean_one else numpyro.sample(f"rate_{side}", dist.Gamma(1.0, 1.0))
        with numpyro.plate(f"noise_{side}", n):
            value = numpyro.sample(f"tau_{side}", dist.Gamma(shape, rate))
        return value, [jnp.log(jnp.stack([shape, rate])), jnp.log(value)]

    def precisions() -> Any:
        """One of each rating."""
        if noise_by is None:
            tau = numpyro.sample("tau", dist.Gamma(1.0, 1.0))
            numpyro.deterministic("noise", jnp.log(tau)[None])
            return tau
        tau, reported = jnp.ones(()), []
        if noise_by != "item":
            value, own = own_noise("users", int(data["n_users"]), mean_one=False)
            tau, reported = tau * value[data["user"]], reported + own
        if noise_by != "user":
            value, own = own_noise("items", int(data["n_items"]), mean_one=noise_by == "both")
            tau, reported = tau * value[data["item"]], reported + own
        numpyro.deterministic("noise", jnp.concatenate(reported))
        return tau

    def model() -> None:
        users, items = rows("users", int(data["n_users"])), rows("items", int(data["n_items"]))
        tau = precisions()
        every = users[:, :D] @ items[:, :D].T
        if bias:
            every = every + users[:, D:] + items[:, D]
        prediction = numpyro.deterministic("prediction", every)
        rated = prediction[data["user"], data["item"]]
        numpyro.sample("ratings", dist.Normal(rated, tau**-0.5), obs=data["value"])

    return model


def main() -> None:
    """Read a job from stdin; write draws to a file, and a line that says how it went."""
    lines = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what others print goes to stderr
    job = json.loads(sys.stdin.readline())
    try:
        import jax
        import numpyro
        from numpyro.infer import MCMC, NUTS
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=lines)
        return
    jax.config.update("jax_enable_x64", True)
    with np.load(job["data"]) as file:
        data = dict(file)
    begin = time.perf_counter()
    model = make_model(data, job["factors"], job["prior"], job["noise_by"])
    kernel = NUTS(model, target_accept_prob=0.9)
    run = MCMC(
        kernel, num_warmup=job["warmup"], num_samples=job["draws"], num_chains=job["chains"],
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    run.run(jax.random.PRNGKey(job["seed"]), extra_fields=("diverging", "num_steps"))
    found, extra = run.get_samples(group_by_chain=True), run.get_extra_fields()
    np.savez(job["out"], prediction=found["prediction"], noise=found["noise"])
    reported = {
        "version": numpyro.__version__, "seconds": time.perf_counter() - begin,
        "diverging": int(extra["diverging"].sum()), "steps": float(extra["num_steps"].mean()),
    }  # fmt: skip
    print(json.dumps(reported), file=lines)


if __name__ == "__main__":
    main()
