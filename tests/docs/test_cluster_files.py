"""The files of examples/cluster have the form that Ray and KubeRay ask for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray")
import jsonschema  # noqa: E402  # comes with Ray
import yaml  # noqa: E402

FOLDER = Path(__file__).parents[2] / "examples" / "cluster"


def read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text())


def test_the_launchers_file_fits_rays_own_schema() -> None:
    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    config = read("launch.yaml")
    workers = config["available_node_types"]["worker"]
    assert f"workers={workers['max_workers'] * workers['resources']['CPU']}," in (FOLDER / "train.py").read_text()
    jsonschema.validate(config, json.loads(schema.read_text()))
    assert config["head_node_type"] in config["available_node_types"]


def test_the_kuberay_job_asks_for_the_ray_that_is_pinned() -> None:
    job = read("kuberay.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    cores = int(group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert f"workers={group['maxReplicas'] * cores}," in job["spec"]["entrypoint"], "or the autoscaler adds no node"
    assert f"ray=={cluster['rayVersion']}" in (FOLDER.parents[1] / "constraints.txt").read_text().split()
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    images = {container["image"] for group in groups for container in group["template"]["spec"]["containers"]}
    assert len(images) == 1, "driver and workers need the same versions"
    assert all(group["minReplicas"] <= group["replicas"] <= group["maxReplicas"] for group in groups[1:])
