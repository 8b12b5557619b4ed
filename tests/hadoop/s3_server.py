"""An S3 on this machine for tests: moto's server in this process."""

from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from moto.server import ThreadedMotoServer

KEYS = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing", "region_name": "us-east-1"}


@contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """Run a server with one empty bucket for the length of the block; yield its address."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        boto3.client("s3", endpoint_url=endpoint, **KEYS).create_bucket(Bucket=bucket)
        yield endpoint
    finally:
        server.stop()
