"""The server of a page: on loopback, with a token in the address, read-only.

Changes are pushed as server-sent events. Each browser is told what is new since what it was told last, when it is
ready for it: one that stalls is told less often, and nobody waits for it.
"""

import asyncio
import json
import logging
import secrets
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from emberflow._plan import deadlines
from emberflow.errors import ClusterError, ConfigError
from emberflow.page import html
from emberflow.page.sources import Runs

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

log = logging.getLogger("emberflow")

HOST = "127.0.0.1"
MOST_RUNS = 6  # of which curves are drawn at the same time
HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address has the token in it
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageServer:
    """Serves a page on a thread of its own until it is closed.

    Args:
        runs: What it shows.
        port: The port to listen on; 0 for any free one.

    Raises:
        ConfigError: The port is taken, or the packages for it are not installed.

    Attributes:
        url: The address with the token: whoever has it may look.
    """

    def __init__(self, runs: Runs, port: int = 0) -> None:
        uvicorn = _uvicorn()
        self._runs = runs
        self._token = secrets.token_urlsafe(24)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing: asyncio.Event | None = None
        self._is_up = threading.Event()
        self._socket = _listening(port)
        self.url = f"http://{HOST}:{self._socket.getsockname()[1]}/?token={self._token}"
        config = uvicorn.Config(
            self._app(),
            log_config=None,
            access_log=False,
            ws="none",
            loop="asyncio",
            timeout_graceful_shutdown=int(deadlines.PAGE_END_TIMEOUT),
        )
        self._server: Any = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="emberflow-page", daemon=True
        )
        self._thread.start()
        if not self._is_up.wait(deadlines.PAGE_START_TIMEOUT):
            raise ClusterError(
                "The page must be up within seconds. Received: no answer.", fix="Start it again."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Tell every browser the last news, and stop."""
        if self._loop is not None and self._closing is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._closing.set)
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _app(self) -> "Starlette":
        from starlette.applications import Starlette
        from starlette.routing import Route

        routes = [Route("/", self._page), Route("/events", self._events)]
        return Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: "Starlette") -> AsyncIterator[None]:
        self._loop, self._closing = asyncio.get_running_loop(), asyncio.Event()
        self._is_up.set()
        yield

    async def _page(self, request: "Request") -> "Response":
        from starlette.responses import HTMLResponse

        if not self._is_allowed(request):
            return _refused()
        headers = {**HEADERS, "Content-Security-Policy": html.policy()}
        return HTMLResponse(html.document(), headers=headers)

    async def _events(self, request: "Request") -> "Response":
        from starlette.responses import StreamingResponse

        if not self._is_allowed(request):
            return _refused()
        wanted = [run for run in request.query_params.get("runs", "").split(",") if run][:MOST_RUNS]
        return StreamingResponse(self._news(wanted), media_type="text/event-stream", headers=HEADERS)

    def _is_allowed(self, request: "Request") -> bool:
        given = request.query_params.get("token", "")
        return secrets.compare_digest(given.encode(), self._token.encode())

    async def _news(self, wanted: list[str]) -> AsyncIterator[str]:
        """Yield what is new, at most twice per second, until the page is closed."""
        assert self._closing is not None  # noqa: S101 - for the type checker: requests come after the start
        listed, seen = "", dict[str, int]()
        while True:
            is_last = self._closing.is_set()
            runs = self._runs.listed()
            if (text := _json(runs)) != listed:
                listed = text
                yield f"event: runs\ndata: {text}\n\n"
            for run in wanted or [each["run_id"] for each in runs[:1]]:
                since = seen.get(run, 0)
                change = self._runs.changes(run, since)
                if change is not None and change["version"] > since:
                    seen[run] = change["version"]
                    yield f"data: {_json({**change, 'since': since})}\n\n"
            if is_last:
                yield "event: closed\ndata: {}\n\n"
                return
            try:
                await asyncio.wait_for(self._closing.wait(), deadlines.PAGE_INTERVAL)
            except TimeoutError:
                continue


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def _refused() -> "Response":
    from starlette.responses import PlainTextResponse

    text = "This page needs the token that is in the address that the program printed.\n"
    return PlainTextResponse(text, status_code=401, headers=HEADERS)


def _uvicorn() -> Any:
    try:
        import starlette  # noqa: F401 - is it there?
        import uvicorn
    except ImportError as error:
        raise ConfigError(
            f"The page needs the packages starlette and uvicorn. Received: {error}.",
            fix="pip install 'emberflow[page]'",
        ) from error
    return uvicorn


def _listening(port: int) -> socket.socket:
    """Return a socket that listens on loopback."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
        sock.listen()
    except (OSError, OverflowError) as error:
        sock.close()
        raise ConfigError(
            f"The page needs a free port of {HOST}. Received: {port}: {error}.",
            fix="Choose another port, or leave it out: then any free one is taken.",
        ) from error
    return sock
