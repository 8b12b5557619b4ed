"""`emberflow train`: a Keras model on files, on Spark."""

from pathlib import Path
from typing import Annotated

import typer

from emberflow.cli.file_rows import SPARK
from emberflow.cli.spark_files import (
    ColumnsOption,
    FormatOption,
    InputModeOption,
    MasterOption,
    ReaderOption,
)
from emberflow.config import RunConfig

# Panels of --help.
RESOURCES = "Nodes and GPUs"
RESTARTS = "Checkpoints and restarts"
NETWORK = "Network and disk"


def train(
    program: Annotated[
        Path, typer.Argument(help="A Python file whose `build_model` returns a compiled model.")
    ],
    rows: Annotated[
        str, typer.Argument(help="The rows: a path or URL of csv, json, parquet, orc or tfrecord.")
    ],
    output: Annotated[str, typer.Argument(help="Folder for the trained model; an existing one is replaced.")],
    features: Annotated[
        list[str], typer.Option("--features", "--features-col", help="A feature column; repeat for more.")
    ],
    label: Annotated[
        list[str], typer.Option("--label", "--label-col", help="The label column; repeat for more.")
    ],
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the rows.")] = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in one step of one worker.")] = 32,
    validation_split: Annotated[float, typer.Option(help="Share of the rows to validate on.")] = 0.0,
    seed: Annotated[
        int, typer.Option(help="Determines the order of the rows, the validation split and Dropout.")
    ] = 0,
    strategy: Annotated[
        str,
        typer.Option(help="data_parallel (synchronous), or parameter_server, periodic (asynchronous)."),
    ] = RunConfig.strategy,
    param: Annotated[
        list[str] | None,
        typer.Option(help="Any other Param of KerasEstimator by its name: optimizer=adam, weightCol=w."),
    ] = None,
    source_format: FormatOption = None,
    option: ReaderOption = None,
    columns: ColumnsOption = None,
    input_mode: InputModeOption = SPARK,
    evaluation: Annotated[
        str | None,
        typer.Option(
            help="Files of tfrecord or parquet: one more node, the evaluator, evaluates each checkpoint on them."
        ),
    ] = None,
    master: MasterOption = None,
    preload: Annotated[
        bool,
        typer.Option(
            "--preload/--no-preload",
            help="Import TensorFlow on the nodes while their rows arrive.",
            rich_help_panel=RESOURCES,
        ),
    ] = RunConfig.preload,
    verbose: Annotated[
        bool, typer.Option("--verbose/--quiet", help="Show progress and the nodes' output.")
    ] = RunConfig.verbose,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            "--num-workers",
            min=1,
            help="Nodes that train together; every slot if left out. Required on Spark Connect.",
            rich_help_panel=RESOURCES,
        ),
    ] = None,
    ps: Annotated[
        int,
        typer.Option(
            "--ps",
            "--num-ps",
            min=1,
            help="Parameter servers of an asynchronous strategy.",
            rich_help_panel=RESOURCES,
        ),
    ] = 1,
    gpus: Annotated[
        int,
        typer.Option(
            "--gpus",
            "--gpus-per-worker",
            min=0,
            max=1,
            help="GPUs of each worker, its own.",
            rich_help_panel=RESOURCES,
        ),
    ] = RunConfig.gpus,
    gpu_source: Annotated[
        str,
        typer.Option(
            help="spark: GPUs that Spark schedules; nvml: free GPUs of the host, where Spark manages none.",
            rich_help_panel=RESOURCES,
        ),
    ] = RunConfig.gpu_source,
    gpu_resource: Annotated[
        str | None, typer.Option(help="Spark's name for its GPUs, if not gpu.", rich_help_panel=RESOURCES)
    ] = RunConfig.gpu_resource,
    transport: Annotated[
        str,
        typer.Option(
            help="How workers exchange gradients: ring, collectives (NCCL on GPUs), or auto.",
            rich_help_panel=RESOURCES,
        ),
    ] = RunConfig.transport,
    checkpoint_dir: Annotated[
        str | None,
        typer.Option(
            help="Storage that all nodes share, for checkpoints to resume from.", rich_help_panel=RESTARTS
        ),
    ] = RunConfig.checkpoint_dir,
    continues: Annotated[
        bool,
        typer.Option(
            "--continue",
            help="Continue from the newest checkpoint, which must exist; --epochs counts those before too.",
            rich_help_panel=RESTARTS,
        ),
    ] = False,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="Restarts of all nodes after a lost one.", rich_help_panel=RESTARTS)
    ] = RunConfig.max_restarts,
    restart_on_error: Annotated[
        bool,
        typer.Option(
            "--restart-on-error",
            help="Restart after an exception of the model too.",
            rich_help_panel=RESTARTS,
        ),
    ] = RunConfig.restart_on_error,
    start_timeout: Annotated[
        float, typer.Option(help="Seconds until all nodes must have joined.", rich_help_panel=RESTARTS)
    ] = RunConfig.start_timeout,
    executor_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds in which all executors must register after the first one.", rich_help_panel=RESTARTS
        ),
    ] = RunConfig.executor_timeout,
    join_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds until workers must have connected to each other.", rich_help_panel=RESTARTS
        ),
    ] = RunConfig.join_timeout,
    exchange_timeout: Annotated[
        float,
        typer.Option(
            help="Seconds after which a node that does not answer is an error.", rich_help_panel=RESTARTS
        ),
    ] = RunConfig.exchange_timeout,
    encrypt: Annotated[
        bool,
        typer.Option(
            "--encrypt",
            help="Encrypt everything between driver and nodes; always so where Spark encrypts its traffic.",
            rich_help_panel=NETWORK,
        ),
    ] = RunConfig.encrypt,
    allow_unencrypted: Annotated[
        bool,
        typer.Option(
            "--allow-unencrypted",
            help="Let TensorFlow's own servers run, which cannot encrypt, where all else is encrypted.",
            rich_help_panel=NETWORK,
        ),
    ] = RunConfig.allow_unencrypted,
    driver_host: Annotated[
        str | None,
        typer.Option(
            help="The address at which executors reach this machine, if not Spark's.", rich_help_panel=NETWORK
        ),
    ] = RunConfig.driver_host,
    port_range: Annotated[
        str | None,
        typer.Option(
            help="Ports to listen on, here and on the executors, such as 30000-30100.",
            rich_help_panel=NETWORK,
        ),
    ] = RunConfig.port_range,
    record: Annotated[
        str | None,
        typer.Option(help="Folder for a record of what happens, on any storage: see emberflow runs."),
    ] = RunConfig.record,
    page: Annotated[
        bool, typer.Option("--page", help="Serve a page of the training on this machine's loopback.")
    ] = False,
    tensorboard_dir: Annotated[
        str | None,
        typer.Option(
            help="Shared storage for event files, which TensorBoard shows during the training.",
            rich_help_panel=NETWORK,
        ),
    ] = RunConfig.tensorboard,
    tensorboard_host: Annotated[
        str, typer.Option(help="The interface that TensorBoard listens on.", rich_help_panel=NETWORK)
    ] = RunConfig.tensorboard_host,
    spool_dir: Annotated[
        str | None,
        typer.Option(help="Local folder for each worker's rows, if not Spark's.", rich_help_panel=NETWORK),
    ] = RunConfig.spool_dir,
    spool_limit: Annotated[
        int | None,
        typer.Option(min=1, help="Most bytes of one worker's rows there.", rich_help_panel=NETWORK),
    ] = RunConfig.spool_limit,
) -> None:
    """Train a Keras model on files, on Spark.

    The exit code is 0 when the model is saved, 2 for wrong input, and 1 if the training failed.

    For example:

      emberflow train model.py rows.csv model --features length --features width --label kind --master "local[2]"

      emberflow train model.py s3://bucket/rows.parquet s3://bucket/model --features image --label digit --epochs 3
      --workers 4 --gpus 1 --checkpoint-dir s3://bucket/checkpoints --max-restarts 2 --master spark://my-master:7077

      emberflow train model.py mnist/train model --format tfrecord --input-mode files --features image --label label
      --workers 2 --evaluation mnist/test --checkpoint-dir checkpoints --tensorboard-dir events --master yarn

      spark-submit --master yarn $(emberflow --submit-file) train model.py hdfs:///rows.parquet hdfs:///model ...
    """
    from emberflow.cli.train_job import TrainingRows, run_train

    params = {
        "featuresCols": features,
        "labelCols": label,
        "epochs": epochs,
        "batchSize": batch_size,
        "validationSplit": validation_split,
        "seed": seed,
        "strategy": strategy,
        "preload": preload,
        "verbose": verbose,
        "numWorkers": workers or "auto",
        "numPs": ps,
        "gpusPerWorker": gpus,
        "gpuSource": gpu_source,
        "gpuResource": gpu_resource,
        "transport": transport,
        "checkpointDir": checkpoint_dir,
        "maxRestarts": max_restarts,
        "restartOnError": restart_on_error,
        "startTimeout": start_timeout,
        "executorTimeout": executor_timeout,
        "joinTimeout": join_timeout,
        "exchangeTimeout": exchange_timeout,
        "encrypt": encrypt,
        "allowUnencrypted": allow_unencrypted,
        "driverHost": driver_host,
        "portRange": port_range,
        "record": record,
        "page": page,
        "tensorboardDir": tensorboard_dir,
        "tensorboardHost": tensorboard_host,
        "spoolDir": spool_dir,
        "spoolLimit": spool_limit,
    }
    code = run_train(
        program=program,
        rows=TrainingRows(
            path=rows,
            source_format=source_format,
            options=tuple(option or ()),
            columns=columns,
            input_mode=input_mode,
            evaluation=evaluation,
        ),
        output=output,
        continues=continues,
        master=master,
        params=params,
        more=param or [],
    )
    raise typer.Exit(code)
