"""A TensorFlow 1 program with parameter servers and flags, unchanged, on Spark.

`main` is what such programs look like: it knows only its flags. `train` builds them from the cluster that
Emberflow started. Each worker computes gradients on its own and applies them when it has them: asynchronously.

    python examples/between_graph.py
    python examples/between_graph.py --tiny          fewer steps
"""

import argparse
import functools
import time
from typing import Any


def main(arguments: list[str]) -> dict[str, Any]:
    import numpy as np

    import tensorflow as tf

    parser = argparse.ArgumentParser()
    parser.add_argument("--job_name", choices=["ps", "worker"])
    parser.add_argument("--task_index", type=int)
    parser.add_argument("--ps_hosts", type=lambda text: text.split(","))
    parser.add_argument("--worker_hosts", type=lambda text: text.split(","))
    parser.add_argument("--steps", type=int)
    flags = parser.parse_args(arguments)

    tf1 = tf.compat.v1
    cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts, "worker": flags.worker_hosts})
    server = tf1.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
    if flags.job_name == "ps":
        server.join()  # never returns; Emberflow ends it when the workers are done

    device = tf1.train.replica_device_setter(
        worker_device=f"/job:worker/task:{flags.task_index}", cluster=cluster
    )
    with tf.Graph().as_default(), tf1.device(device):
        features, labels = tf1.placeholder(tf.float32, [None, 3]), tf1.placeholder(tf.float32, [None, 1])
        weights = tf1.get_variable("weights", initializer=tf.zeros([3, 1]))
        loss = tf.reduce_mean((features @ weights - labels) ** 2)
        global_step = tf1.train.get_or_create_global_step()
        train_op = tf1.train.GradientDescentOptimizer(0.05).minimize(loss, global_step)
        arrived = tf1.get_variable("arrived", initializer=0, trainable=False)
        arrive = arrived.assign_add(1)

        random = np.random.default_rng(flags.task_index)
        steps, own = [0], 0.0
        supervisor = tf1.train.Supervisor(is_chief=flags.task_index == 0, recovery_wait_secs=1)
        with supervisor.managed_session(server.target) as session:
            session.run(arrive)
            while session.run(arrived) < len(flags.worker_hosts):
                time.sleep(0.05)  # so that no worker is done before another has begun
            while steps[-1] < flags.steps:
                x = random.normal(size=(16, 3))
                fed = {features: x, labels: x @ [[1.0], [2.0], [3.0]]}
                _, own, step = session.run([train_op, loss, global_step], fed)
                steps.append(int(step))
        return {"steps": steps[1:], "loss": float(own), "ps": weights.device}


def train(ctx: Any, steps: int = 200) -> dict[str, Any]:
    """Call `main` with the flags that such programs take: the chief is their worker 0."""
    workers = [*ctx.cluster_spec["chief"], *ctx.cluster_spec.get("worker", [])]
    return main(
        [
            "--job_name=" + ("ps" if ctx.role == "ps" else "worker"),
            f"--task_index={ctx.index if ctx.role == 'ps' else ctx.rank}",
            "--ps_hosts=" + ",".join(ctx.cluster_spec["ps"]),
            "--worker_hosts=" + ",".join(workers),
            f"--steps={steps}",
        ]
    )


if __name__ == "__main__":
    options = argparse.ArgumentParser(description="A TensorFlow 1 program with parameter servers and flags.")
    options.add_argument("--tiny", action="store_true", help="fewer steps: does it run here?")
    program = functools.partial(train, steps=50 if options.parse_args().tiny else 200)

    import emberflow as ef
    from emberflow.local.cluster import local_cluster

    with local_cluster(workers=3) as cluster, cluster.session() as spark:
        result = ef.run(program, workers=2, ps=1, spark=spark)
    for report in result.reports[:2]:
        print(f"{report.role}: {len(report.value['steps'])} steps, loss {report.value['loss']:.5f}")
