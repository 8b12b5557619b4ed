"""Three processes that the data parallel tests command. This side needs no TensorFlow."""

import json
import secrets
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

RANKS = {"ring2": 2, "ring3": 3, "collectives": 2, "off": 2}
ROOT = Path(__file__).parents[2]


class RankError(Exception):
    """A command failed on a rank."""


class Crew:
    """Three ranks, each a process; commands go to some of them at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = [sys.executable, "-m", "tests.tensorflow.parallel_rank"]
        pipe = subprocess.PIPE
        self.processes = [
            subprocess.Popen([*command, str(rank)], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
            for rank in range(3)
        ]
        for rank in range(3):
            self.answer(rank)
        self.start_collectives()
        self.connect("ring2", bucket_bytes=100)  # nearly every gradient is a bucket of its own
        self.connect("ring3", shares_memory=True)

    def tell(self, rank: int, **command: Any) -> None:
        stdin = self.processes[rank].stdin
        assert stdin is not None
        stdin.write(json.dumps(command) + "\n")
        stdin.flush()

    def answer(self, rank: int) -> Any:
        stdout = self.processes[rank].stdout
        assert stdout is not None
        line = stdout.readline()
        if not line:
            raise RankError(f"rank {rank} is gone")
        answer = json.loads(line)
        if "error" in answer:
            raise RankError(f"rank {rank}: {answer['trace']}")
        return answer["value"]

    def ask(self, ranks: int, **command: Any) -> list[Any]:
        """Give one command to the first ranks and wait for all answers."""
        for rank in range(ranks):
            self.tell(rank, **command)
        with ThreadPoolExecutor(ranks) as pool:
            futures = [pool.submit(self.answer, rank) for rank in range(ranks)]
        return [future.result() for future in futures]

    def connect(
        self,
        name: str,
        receive_timeout: float = 60,
        *,
        bucket_bytes: int | None = None,
        shares_memory: bool = False,
    ) -> None:
        """Connect a ring: by sockets as between hosts, or with every sum through memory that the ranks share."""
        ranks = RANKS[name]
        command = {"name": name, "receive_timeout": receive_timeout}
        command |= {"bucket_bytes": bucket_bytes, "shares_memory": shares_memory}
        command |= {"addresses": self.ask(ranks, do="listen"), "key": secrets.token_hex(32)}
        self.ask(ranks, do="connect", **command)

    def start_collectives(self) -> None:
        held = [socket.socket() for _ in range(2)]
        for sock in held:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(("127.0.0.1", 0))
        workers = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in held]
        for rank in range(2):
            config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
            self.tell(rank, do="collectives", tf_config=json.dumps(config))
        for rank in range(2):
            self.answer(rank)
        for sock in held:
            sock.close()

    def signal(self, rank: int, number: signal.Signals) -> None:
        self.processes[rank].send_signal(number)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
