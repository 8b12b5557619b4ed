"""Every name that a program for TensorFlowOnSpark imports is there, with its arguments in their order."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "migrate" / "tensorflowonspark.md"
OURS = {"Parameter", "calls_of", "combiner_of"}  # of other pages: names that no old library had
SOURCES = ROOT / "compat" / "src"
CALLS = {
    "TFCluster.run": "sc map_fun tf_args num_executors num_ps tensorboard=False input_mode=0 log_dir=None "
    "driver_ps_nodes=False master_node=None reservation_timeout=600 queues=['input','output','error'] "
    "eval_node=False release_port=True",
    "TFCluster.TFCluster.train": "self dataRDD num_epochs=0 feed_timeout=600 qname='input'",
    "TFCluster.TFCluster.inference": "self dataRDD feed_timeout=600 qname='input'",
    "TFCluster.TFCluster.shutdown": "self ssc=None grace_secs=0 timeout=259200",
    "TFCluster.TFCluster.tensorboard_url": "self",
    "TFNode.hdfs_path": "ctx path",
    "TFNode.start_cluster_server": "ctx num_gpus=1 rdma=False",
    "TFNode.export_saved_model": "sess export_dir tag_set signatures",
    "TFNode.release_port": "ctx",
    "TFNode.next_batch": "mgr batch_size qname='input'",
    "TFNode.batch_results": "mgr results qname='output'",
    "TFNode.terminate": "mgr qname='input'",
    "TFNode.DataFeed": "mgr train_mode=True qname_in='input' qname_out='output' input_mapping=None",
    "TFNode.DataFeed.next_batch": "self batch_size",
    "TFNode.DataFeed.should_stop": "self",
    "TFNode.DataFeed.batch_results": "self results",
    "TFNode.DataFeed.terminate": "self",
    "TFSparkNode.TFNodeContext": "executor_id=0 job_name='' task_index=0 cluster_spec={} defaultFS='file://' "
    "working_dir='.' mgr=None tmp_socket=None",
    "TFSparkNode.TFNodeContext.get_data_feed": "self train_mode=True qname_in='input' qname_out='output' "
    "input_mapping=None",
    "TFSparkNode.TFNodeContext.absolute_path": "self path",
    "TFSparkNode.TFNodeContext.release_port": "self",
    "TFSparkNode.run": "fn tf_args cluster_meta tensorboard log_dir queues background",
    "TFSparkNode.train": "cluster_info cluster_meta feed_timeout=600 qname='input'",
    "TFSparkNode.inference": "cluster_info feed_timeout=600 qname='input'",
    "TFSparkNode.shutdown": "cluster_info grace_secs=0 queues=('input',)",
    "TFSparkNode._get_cluster_spec": "sorted_cluster_info",
    "TFSparkNode._has_spark_resource_api": "",
    "TFManager.start": "authkey queues mode='local'",
    "TFManager.connect": "address authkey",
    "TFParallel.run": "sc map_fn tf_args num_executors use_barrier=True",
    "pipeline.Namespace": "d",
    "pipeline.TFEstimator": "train_fn tf_args export_fn=None",
    "pipeline.TFModel": "tf_args",
    "pipeline.TFParams.merge_args_params": "self",
    "pipeline.yield_batch": "iterable batch_size num_tensors=1",
    "pipeline.single_node_env": "args",
    "pipeline.get_meta_graph_def": "saved_model_dir tag_set",
    "dfutil.isLoadedDF": "df",
    "dfutil.saveAsTFRecords": "df output_dir",
    "dfutil.loadTFRecords": "sc input_dir binary_features=()",
    "dfutil.toTFExample": "dtypes",
    "dfutil.fromTFExample": "iter binary_features=()",
    "dfutil.infer_schema": "example binary_features=()",
    "compat.export_saved_model": "model export_dir is_chief=False",
    "compat.disable_auto_shard": "options",
    "compat.is_gpu_available": "",
    "gpu_info.is_gpu_available": "",
    "gpu_info.get_gpus": "num_gpu=1 worker_index=-1 format='string'",
    "util.single_node_env": "num_gpus=1 worker_index=-1 nodes=()",
    "util.get_ip_address": "",
    "util.find_in_path": "path file",
    "util.write_executor_id": "num",
    "util.read_executor_id": "",
    "reservation.Reservations": "required primary_keys=None",
    "reservation.Server": "count primary_keys=None",
    "reservation.Server.start": "self",
    "reservation.Server.await_reservations": "self sc=None status=None timeout=600",
    "reservation.Client": "server_addr",
    "reservation.Client.register": "self reservation",
    "reservation.Client.await_reservations": "self",
    "reservation.Client.request_stop": "self",
    "marker.Marker": "",
    "marker.EndPartition": "",
}
PARAMS = [
    "BatchSize",
    "ClusterSize",
    "DriverPSNodes",
    "Epochs",
    "ExportDir",
    "GraceSecs",
    "InputMapping",
    "InputMode",
    "MasterNode",
    "ModelDir",
    "NumPS",
    "OutputMapping",
    "Protocol",
    "Readers",
    "SignatureDefKey",
    "Steps",
    "TFRecordDir",
    "TagSet",
    "Tensorboard",
]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_takes_what_it_took(name: str) -> None:
    module, *path = name.split(".")
    found = importlib.import_module(f"tensorflowonspark.{module}")
    for each in path:
        found = getattr(found, each)
    parameters = inspect.signature(found).parameters.values()  # type: ignore[arg-type]
    told = [
        each.name if each.default is each.empty else f"{each.name}={each.default!r}".replace(", ", ",")
        for each in parameters
        if each.kind is each.POSITIONAL_OR_KEYWORD
    ]
    assert " ".join(told) == CALLS[name]


@pytest.mark.parametrize("name", PARAMS)
def test_each_param_has_its_class_and_accessors(name: str) -> None:
    pipeline = importlib.import_module("tensorflowonspark.pipeline")
    kind = getattr(pipeline, f"Has{name}")
    assert issubclass(pipeline.TFEstimator, kind) or issubclass(pipeline.TFModel, kind)
    assert {f"set{name}", f"get{name}"} <= set(dir(kind))


def test_constants() -> None:
    tfcluster = importlib.import_module("tensorflowonspark.TFCluster")
    gpus = importlib.import_module("tensorflowonspark.gpu_info")
    assert (tfcluster.InputMode.TENSORFLOW, tfcluster.InputMode.SPARK) == (0, 1)
    assert (gpus.MAX_RETRIES, gpus.AS_STRING, gpus.AS_LIST) == (3, "string", "list")
    assert importlib.import_module("tensorflowonspark").__version__ == "2.2.5"


def test_the_page_for_those_who_move_has_every_name() -> None:
    cluster = importlib.import_module("tensorflowonspark.TFCluster").TFCluster
    context = importlib.import_module("tensorflowonspark.TFSparkNode").TFNodeContext()
    names = {part for name in CALLS for part in name.split(".")} | set(inspect.get_annotations(cluster))
    names |= {name for name in vars(context) if name != "mirror_by"}  # ours
    names |= {told.partition("=")[0] for told in CALLS["TFCluster.run"].split()}
    names |= {f"{kind}{name}" for name in PARAMS for kind in ("Has", "set")}
    told = PAGE.read_text().partition("## Every name")[2].partition("## What differs")[0]
    assert sorted(names - set(re.findall(r"\w+", told))) == []


@pytest.mark.parametrize(
    ("page", "module"),
    [
        ("hops.md", "hops/hdfs.py"),
        ("hops.md", "hops/tensorboard.py"),
        ("hops.md", "hops/tflauncher.py"),
        ("hops.md", "hops/util.py"),
        ("spark-tensorflow-distributor.md", "spark_tensorflow_distributor/mirrored_strategy_runner.py"),
        ("tensorspark.md", "tensorspark/core/partitioner.py"),
        ("tensorspark.md", "tensorspark/core/spark_session.py"),
        ("tensorspark.md", "tensorspark/core/weight_combiner.py"),
    ],
)
def test_the_other_pages_have_every_public_name(page: str, module: str) -> None:
    names: set[str] = set()
    for node in ast.parse((SOURCES / module).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.endswith("Error"):
            names.add(node.name)
        if isinstance(node, ast.ClassDef) and node.name in ("MirroredStrategyRunner", "SparkSession"):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            names |= {each.name for each in methods}
            arguments = [each.args for each in methods if each.name == "__init__"]
            names |= {name.arg for each in arguments for name in each.args + each.kwonlyargs} - {"self"}
    told = set(re.findall(r"\w+", (PAGE.parent / page).read_text()))
    assert sorted(name for name in names - told - OURS if not name.startswith("_")) == []
