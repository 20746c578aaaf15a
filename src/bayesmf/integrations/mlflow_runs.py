"""MLflow: runs that are told how a fit goes, and what it came to."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from bayesmf import __version__
from bayesmf.chains.callbacks import Event, RunPlan
from bayesmf.checks import whole
from bayesmf.diagnostics.metrics import Scores
from bayesmf.estimator.bayesian_mf import BayesianMF
from bayesmf.integrations.needed import mlflow_part

_MOST_TEXT = 500  # what older servers take as the value of a parameter


class MLflowCallback:
    """A callback that logs to an MLflow run how a fit goes.

    For each epoch (MLflow's step) of each chain: `chain_0/train_rmse`, `chain_0/tau`,
    `chain_0/validation_rmse` where there is a validation set, and for all chains together
    `all_chains/validation_rmse` and `all_chains/ratings_per_second`. A thread writes, so that
    sampling does not wait for a server; what it could not write ends as a warning of the fit, or
    is raised by `flush`.

    Parameters
    ----------
    run_id : str, optional
        The run; by default the active one, or a new one where none is active, as MLflow has it.
    every : int
        Log each so many epochs of a chain.

    Raises
    ------
    InputError
        If MLflow is not installed, or `every` is no whole number from 1 on.

    Examples
    --------
    >>> import os
    >>> import mlflow
    >>> from bayesmf import BayesianMF, Gibbs
    >>> from bayesmf.integrations.mlflow import MLflowCallback
    >>> os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # runs go to a folder here, not to a server
    >>> mlflow.set_tracking_uri("file:fits")
    >>> callback = MLflowCallback()
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0, callbacks=[callback])
    >>> with mlflow.start_run() as run:
    ...     _ = model.fit(ratings)
    ...     callback.flush()
    >>> "chain_0/train_rmse" in mlflow.get_run(run.info.run_id).data.metrics
    True
    """

    def __init__(self, run_id: str | None = None, every: int = 1) -> None:
        mlflow_part()
        self.run_id, self.every = run_id, whole("every", every)
        self._forget()

    def _forget(self) -> None:
        self._client: Any = None
        self._run = ""
        self._waiting: deque[Any] = deque()
        self._written: Future[None] | None = None
        self._failure: Exception | None = None
        self._thread: ThreadPoolExecutor | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What a copy gets, such as scikit-learn makes for each fit: not the thread."""
        return {"run_id": self.run_id, "every": self.every}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def begin(self, plan: RunPlan) -> None:
        """Find the run: the chains are about to begin.

        Parameters
        ----------
        plan : RunPlan
            Number of chains, their epochs at the most, and the time allowed.
        """
        mlflow = mlflow_part()
        self._run = self.run_id or (mlflow.active_run() or mlflow.start_run()).info.run_id
        self._client, self._failure = mlflow.MlflowClient(), None
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="mlflow")

    def __call__(self, event: Event) -> None:
        """Log an event.

        Parameters
        ----------
        event : Event
            The end of an epoch.
        """
        if event.epoch % self.every:
            return
        if self._failure is not None:
            raise self._failure  # the fit tells of it, and goes on
        own = {
            "train_rmse": event.train_rmse,
            "tau": event.tau,
            "validation_rmse": event.rmse,
            "step_size": event.step_size,
        }
        found = {f"chain_{event.chain}/{name}": value for name, value in own.items()}
        found["all_chains/validation_rmse"] = event.rmse_all_chains
        found["all_chains/ratings_per_second"] = event.ratings_per_second
        entity, now = mlflow_part(".entities").Metric, int(1000 * time.time())
        self._waiting.extend(
            entity(key, float(value), now, event.epoch)
            for key, value in found.items()
            if value is not None
        )
        assert self._thread is not None, "begin was called"
        self._written = self._thread.submit(self._write)

    def _write(self) -> None:
        """Write all that waits, in one request or few."""
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(900, len(self._waiting)))]
                self._client.log_batch(self._run, metrics=batch)
        except Exception as error:
            self._failure = error

    def flush(self) -> None:
        """Wait until all has been written; raises what MLflow raised."""
        if self._written is not None:
            self._written.result()
        if self._failure is not None:
            raise self._failure


def log_report(
    model: BayesianMF, scores: Scores | None = None, *, run_id: str | None = None
) -> None:
    """Log to an MLflow run what a fit came to.

    Settings as they were resolved become parameters, the report's numbers metrics, and the verdict
    on convergence the tag `bayesmf.verdict`.

    Parameters
    ----------
    model : BayesianMF
        The fitted model.
    scores : Scores, optional
        What `model.evaluate(test)` gave: metrics `test_rmse`, `test_nll`, `test_coverage_90` etc.
    run_id : str, optional
        The run; by default the active one, or a new one where none is active.

    Raises
    ------
    InputError
        If MLflow is not installed.
    NotFittedError
        If the model has not been fitted.

    Examples
    --------
    >>> import os
    >>> import mlflow
    >>> from bayesmf import BayesianMF, Gibbs
    >>> from bayesmf.integrations.mlflow import log_report
    >>> os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # runs go to a folder here, not to a server
    >>> mlflow.set_tracking_uri("file:reports")
    >>> ratings = [1, 1, 2, 2, 3], [7, 8, 7, 9, 8], [4.0, 1.0, 5.0, 3.0, 2.0]
    >>> model = BayesianMF(2, sampler=Gibbs(epochs=4), random_state=0).fit(ratings)
    >>> with mlflow.start_run() as run:
    ...     log_report(model)
    >>> mlflow.get_run(run.info.run_id).data.params["factors"]
    '2'
    """
    mlflow = mlflow_part()
    report = model.report_
    run = run_id or (mlflow.active_run() or mlflow.start_run()).info.run_id
    for callback in model.callbacks:
        if isinstance(callback, MLflowCallback):
            callback.flush()
    entities, now = mlflow_part(".entities"), int(1000 * time.time())
    numbers = _numbers(report, scores)
    converged = report["convergence"]
    tags = {
        "bayesmf.version": __version__,
        "bayesmf.verdict": converged["verdict"],
        "bayesmf.advice": converged.get("advice", ""),
        "bayesmf.converged": {True: "yes", False: "no"}.get(converged["converged"], "not known"),
    }
    mlflow.MlflowClient().log_batch(
        run,
        metrics=[entities.Metric(key, float(x), now, 0) for key, x in numbers.items()],
        params=[entities.Param(key, text) for key, text in _settings(report).items()],
        tags=[entities.RunTag(key, text) for key, text in tags.items() if text],
    )


def _settings(report: Mapping[str, Any]) -> dict[str, str]:
    """Resolved settings as text."""
    names = ("factors", "prior", "noise_by", "target", "max_seconds", "seed")
    told = {name: report.get(name) for name in names}
    told |= {f"sampler.{name}": value for name, value in report["sampler"].items()}
    told |= {name: report[name] for name in ("ratings", "users", "items")}
    told["engine"] = report["engine"]["name"]
    return {name: str(value)[:_MOST_TEXT] for name, value in told.items()}


def _numbers(report: Mapping[str, Any], scores: Scores | None) -> dict[str, float]:
    names: Sequence[str] = (
        "seconds", "compile_seconds", "epochs", "draws", "ratings_per_second", "tau", "noise_std",
        "validation_rmse",
    )  # fmt: skip
    found = {name: report.get(name) for name in names}
    found |= {name: report["convergence"].get(name) for name in ("rhat", "rhat_noise", "loss")}
    if scores is not None:
        tests = ("n", "rmse", "mae", "nll", "crps", "log_loss", "rps")
        found |= {f"test_{name}": getattr(scores, name) for name in tests}
        found |= {f"test_coverage_{level}": share for level, share in scores.coverage.items()}
    return {name: float(value) for name, value in found.items() if value is not None}
