"""The service on a local Ray: replicas answer as the library does, and take up a new model."""

import json
import urllib.error
import urllib.request
import warnings

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("ray", reason="the extra 'ray' is not installed")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what it makes of its own parts
    try:
        from ray import serve
    except ImportError as error:
        pytest.skip(f"Ray Serve is not looked at: {error.name} is missing", allow_module_level=True)
import ray

from bayesmf.web import deployment
from small_service import small_model
from waiting import until

PORT = 8642


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", data, {"content-type": "application/json"}
    )
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return json.loads(answer.read())


def is_ready():
    """Not so while replicas compile: then the answer is 503."""
    try:
        return ask("/readyz")["status"] == "ok"
    except urllib.error.HTTPError:
        return False


@pytest.mark.filterwarnings("ignore")
def test_a_deployment_on_a_local_ray(tmp_path):
    models = small_model(0), small_model(1)
    models[0].save(tmp_path / "model")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=40)
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
        serve.run(deployment(tmp_path / "model", replicas=2), route_prefix="/")
        until(is_ready, 120)
        for model in models:
            model.save(tmp_path / "model")
            own = [(one.item, one.mean) for one in model.recommend(3, 5)]

            def is_served(own=own):
                found = [ask("/v1/recommend", {"user": 3, "n": 5}) for _ in range(4)]
                return all([(i["item"], i["mean"]) for i in one["items"]] == own for one in found)

            until(is_served, 60)
    finally:
        serve.shutdown()
        ray.shutdown()
