"""The files in cluster/ that are not read by `cluster check`: the AWS policy and the SLURM script."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from processes import patience_s

ROOT = Path(__file__).parents[2]
POLICY = json.loads((ROOT / "cluster/aws-iam.json").read_text())["Statement"]


def listed(value):
    return [value] if isinstance(value, str) else value


def actions() -> set[str]:
    return {action for statement in POLICY for action in listed(statement["Action"])}


# ---- AWS


@pytest.mark.parametrize("statement", POLICY, ids=lambda statement: statement["Sid"])
def test_each_right_is_named_and_is_for_this_account_bucket_or_cluster(statement):
    assert not any("*" in action for action in listed(statement["Action"]))
    if not all(action.startswith("ec2:Describe") for action in listed(statement["Action"])):
        assert all(re.search("ACCOUNT|BUCKET|::image/", resource) for resource in listed(statement["Resource"]))


def test_machines_of_other_clusters_are_out_of_reach():
    name = yaml.safe_load((ROOT / "cluster.yaml").read_text())["cluster_name"]
    for action in ("ec2:TerminateInstances", "ec2:StopInstances", "ec2:StartInstances", "ec2:RunInstances"):
        key = "aws:RequestTag" if action == "ec2:RunInstances" else "ec2:ResourceTag"
        on_machines = [
            statement
            for statement in POLICY
            if action in listed(statement["Action"]) and "instance/*" in str(statement["Resource"])
        ]
        conditions = [statement["Condition"] for statement in on_machines]
        assert conditions == [{"StringEquals": {f"{key}/ray-cluster-name": name}}], action


def test_rays_autoscaler_may_do_all_that_it_does():
    """Every call of its source, as an action; `instances.filter` describes, `create_instances` runs."""
    import ray.autoscaler

    source = (Path(ray.autoscaler.__path__[0]) / "_private/aws/node_provider.py").read_text()
    called = set(re.findall(r"self\.ec2\w*\.meta\.client\.(\w+)", source))
    assert {"create_tags", "terminate_instances"} <= called
    needed = {"".join(word.capitalize() for word in name.split("_")) for name in called}
    needed |= {"DescribeInstances"} if ".instances.filter(" in source else set()
    needed |= {"RunInstances"} if ".create_instances(" in source else set()
    assert {f"ec2:{name}" for name in needed} == {action for action in actions() if action.startswith("ec2:")}


def test_the_commands_in_the_docs_create_the_role_and_its_profile(tmp_path):
    (tmp_path / "aws").write_text(
        '#!/usr/bin/env bash\nif [ "$1" = sts ]; then echo 123456789012; exit; fi\n'
        'printf "%s\\0" "$@" >> "$CALLS"; printf "\\n\\0" >> "$CALLS"\n'
    )
    (tmp_path / "aws").chmod(0o755)
    text = (ROOT / "docs/guides/cluster/aws.md").read_text()
    (block,) = (one for one in re.findall(r"```\n(.*?)```", text, re.DOTALL) if "create-role" in one)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "CALLS": str(tmp_path / "calls")}
    script = block.replace("CHANGE_ME", "my-runs")
    subprocess.run(["bash", "-eu", "-c", script], cwd=ROOT, env=environment, check=True, timeout=patience_s(60))
    calls = [call.split("\0")[:-1] for call in (tmp_path / "calls").read_text().split("\n\0")[:-1]]
    assert [call[:2] for call in calls] == [
        ["iam", "create-role"],
        ["iam", "put-role-policy"],
        ["iam", "create-instance-profile"],
        ["iam", "add-role-to-instance-profile"],
    ]
    trust, policy = json.loads(calls[0][-1]), json.loads(calls[1][-1])
    assert trust["Statement"][0]["Principal"] == {"Service": "ec2.amazonaws.com"}
    resources = [resource for statement in policy["Statement"] for resource in listed(statement["Resource"])]
    assert {"arn:aws:iam::123456789012:role/disentune", "arn:aws:s3:::my-runs/*"} <= set(resources)
    assert not re.search("ACCOUNT|BUCKET", json.dumps(policy))


# ---- SLURM


def test_the_slurm_script_has_a_place_for_what_a_site_asks_for():
    script = (ROOT / "cluster/slurm.sh").read_text()
    options = dict(re.findall(r"^#{1,2}SBATCH --([\w-]+)=(\S+)$", script, re.MULTILINE))
    assert {"partition", "account", "output", "nodes", "time"} <= options.keys()
    assert "%j" in options["output"], "jobs do not share a log"
