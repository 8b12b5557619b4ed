"""What a description must fulfil beyond the types of its fields."""

import re
from typing import TYPE_CHECKING

from emberflow.deploy.fields import wrong
from emberflow.deploy.memory import mebibytes
from emberflow.deploy.placeholders import check_placeholders
from emberflow.errors import ConfigError

if TYPE_CHECKING:
    from emberflow.deploy.job import Job, Secret, Volume

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LONGEST_LABEL = 63  # of a host name; Kubernetes makes host names of our names
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
RESERVED = ("EMBERFLOW_", "TF_CONFIG", "JOB_COMPLETION_INDEX")
KEY_MOUNTS = ("/var/run/emberflow", "/run/secrets")
AT_MOST_ONE = ("chief", "evaluator", "tensorboard", "dispatcher")
SERVING = {"dispatcher", "data-worker"}


def check_job(job: "Job") -> None:
    """Raise an error that names the field and a remedy if the description makes no sense."""
    _check_names(job)
    _check_numbers(job)
    _check_roles(job)
    _check_role_combinations(job)
    _check_env(job)
    _check_mounts(job)
    check_placeholders(job)


def check_label(path: str, value: str) -> None:
    """Refuse what cannot be a part of a host name."""
    if not DNS_LABEL.fullmatch(value):
        better = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-") or "my-job"
        expected = "a DNS name: lower-case letters, digits and -, with a letter or digit at both ends"
        raise wrong(path, expected, value, f"Call it {better}.")


def _check_names(job: "Job") -> None:
    check_label("name", job.name)
    check_label("namespace", job.namespace)
    for role, each in job.roles.items():
        longest = f"{job.name}-{role}-0-{each.replicas - 1}"
        if len(longest) > LONGEST_LABEL:
            too_much = len(longest) - LONGEST_LABEL
            fix = f"Shorten it by {too_much} characters: host names such as {longest} come of it."
            raise wrong("name", f"at most {len(job.name) - too_much} characters", job.name, fix)
    if not job.image or re.search(r"\s", job.image):
        raise wrong("image", "the name of an image", job.image, "Write REGISTRY/NAME:TAG.")
    if not job.command:
        fix = "Leave it out for `python -m emberflow.node`, or name a program."
        raise wrong("command", "at least one word", list(job.command), fix)
    if not job.working_dir.startswith("/"):
        raise wrong("working_dir", "an absolute path", job.working_dir, f"Write /{job.working_dir}.")


def _check_numbers(job: "Job") -> None:
    if not 1 <= job.port <= 65534:  # the next port is ours
        raise wrong("port", "a port from 1 to 65534", job.port, "Write 2222, for example.")
    if job.max_restarts < 0:
        raise wrong("max_restarts", "0 or more", job.max_restarts, "Write 0 for no restart.")
    if job.time_to_live is not None and job.time_to_live < 0:
        raise wrong("time_to_live", "0 or more seconds", job.time_to_live, "Leave it out to keep the job.")


def _check_roles(job: "Job") -> None:
    for role, each in job.roles.items():
        path = f"roles.{role}"
        if each.replicas < 1:
            fix = f"Write 1 or more, or leave {role} out."
            raise wrong(f"{path}.replicas", "1 or more", each.replicas, fix)
        if role in AT_MOST_ONE and each.replicas > 1:
            fix = "Use roles.worker for more nodes that train." if role == "chief" else "Write 1."
            raise wrong(f"{path}.replicas", "1", each.replicas, fix)
        if each.cpu <= 0:
            raise wrong(f"{path}.cpu", "more than 0", each.cpu, "Write 1 for one core, 0.5 for half a core.")
        if mebibytes(each.memory) is None:
            expected = "a number with Mi, Gi or Ti, at least 1Mi"
            raise wrong(f"{path}.memory", expected, each.memory, "Write 4Gi, for example.")
        if each.gpu < 0:
            raise wrong(f"{path}.gpu", "0 or more", each.gpu, "Leave it out for none.")


def _check_role_combinations(job: "Job") -> None:
    roles = {*job.roles}
    if not roles & {"chief", "worker"} and (not roles or roles - SERVING):
        fix = "Add `worker: {replicas: 2}` to roles."
        raise wrong("roles", "a description with a chief or workers", sorted(roles), fix)
    needs = {"ps": ("chief", "worker"), "data-worker": ("dispatcher",), "dispatcher": ("data-worker",)}
    for role, others in needs.items():
        for other in others:
            if role in roles and other not in roles:
                raise ConfigError(
                    f"Role {role} needs a {other}. Received: roles={sorted(roles)}.",
                    fix=f"Add `{other}: {{replicas: 1}}` to roles.",
                )
    if "tensorboard" in roles and not job.log_dir:
        raise wrong("log_dir", "the folder that tensorboard shows", job.log_dir, "Add `log_dir: /data/logs`.")


def _check_env(job: "Job") -> None:
    for name in job.env:
        path = f"env.{name}"
        if not VARIABLE.fullmatch(name):
            better = re.sub(r"\W", "_", name)
            raise wrong(path, "named by letters, digits and _", name, f"Call it {better}.")
        if name.startswith(RESERVED):
            raise ConfigError(
                f"`{path}` is set by the rendering itself. Received: {path}={job.env[name]!r}.",
                fix="Leave it out; roles, port and key_secret say what it becomes.",
            )


def _check_mounts(job: "Job") -> None:
    seen: dict[str, str] = dict.fromkeys(KEY_MOUNTS, "the run's key")
    names: set[str] = set()
    for place, volume in enumerate(job.volumes):
        path = f"volumes[{place}]"
        _check_volume(path, volume, names)
        _check_mount(path, volume.mount, seen)
    for place, secret in enumerate(job.secrets):
        path = f"secrets[{place}]"
        check_secret(path, secret)
        if secret.mount is None:
            raise wrong(f"{path}.mount", "a folder in the containers", None, "Add `mount: /secrets/NAME`.")
        _check_mount(path, secret.mount, seen)
    if job.key_secret:
        check_secret("key_secret", job.key_secret)
        if job.key_secret.mount:
            raise wrong(
                "key_secret.mount", "left out", job.key_secret.mount, "Its place is fixed: delete it."
            )


def _check_volume(path: str, volume: "Volume", names: set[str]) -> None:
    check_label(f"{path}.name", volume.name)
    if volume.name in names:
        raise wrong(f"{path}.name", "unlike the other volumes' names", volume.name, "Call it differently.")
    names.add(volume.name)
    if bool(volume.claim or volume.host_path) == volume.temporary:
        raise ConfigError(
            f"`{path}` must be a claim or a host_path, or temporary. Received: {volume}.",
            fix="Write `claim: NAME`, `host_path: /FOLDER` or `temporary: true`.",
        )


def check_secret(path: str, secret: "Secret") -> None:
    """Refuse a secret that is neither a name nor a file."""
    if not secret.name and not secret.file:
        fix = "Add `name: SECRET` or `file: ./FILE`; the rendering does not create it."
        raise wrong(path, "the name of a secret or a file", secret, fix)
    if secret.name:
        check_label(f"{path}.name", secret.name)


def _check_mount(path: str, mount: str, seen: dict[str, str]) -> None:
    if not mount.startswith("/") or mount == "/":
        raise wrong(
            f"{path}.mount", "an absolute path below /", mount, f"Write /{mount.strip('/') or 'data'}."
        )
    folder = mount.rstrip("/")
    if folder in seen:
        fix = f"Choose another folder: {seen[folder]} is mounted there."
        raise wrong(f"{path}.mount", "a folder of its own", mount, fix)
    seen[folder] = path
