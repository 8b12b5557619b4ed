"""A server of periodic averaging in a process of its own, for the benchmark: says its address, then serves."""

import socket
import sys

from emberflow.strategies.periodic.server import PeriodicServer


def main() -> None:
    key = bytes.fromhex(sys.stdin.readline())
    listener = socket.create_server(("127.0.0.1", 0))
    server = PeriodicServer(listener, index=0, workers=2, key=key).start()
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
    sys.stdin.read()
    server.close()


if __name__ == "__main__":
    main()
