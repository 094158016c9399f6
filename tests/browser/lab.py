"""A learner's JupyterLab in a browser: a copy of the course, a server, a page, and what a reader does on it.

Each is a context manager that ends whatever it started. Nothing here waits by the clock: every wait is for a
condition, with a generous limit because the machine may be busy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grading.cells import ASSIGNMENTS, ROOT
from tests.browser_ready import system_chromium

CONFIG = Path(__file__).with_name("jupyter_server_config.py")
WAIT_SECONDS = 120  # the limit for anything on a busy machine; a quiet one needs a tenth
CHROMIUM = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--no-first-run", "--disable-sync",
)  # fmt: skip
NO_BROWSER = (
    "The browser test found no browser. Install Debian's (apt-get install chromium) or Playwright's own "
    "(python -m playwright install chromium), then run the test again."
)


class BrowserMissingError(RuntimeError):
    """No Chromium was found; the message says what to install."""


def copy_course(folder: Path) -> Path:
    """What a learner has: the start page, the week folders and the public checks; no staff folder."""
    for name in ("START_HERE.ipynb", "README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    for name in (*ASSIGNMENTS, "grading/checks", "docs"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_*"))
    return folder


@contextlib.contextmanager
def lab_server(course: Path, scratch: Path) -> Iterator[str]:
    """A JupyterLab on the course at a free port of loopback; yields its address, ends it and its kernels."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", f"--config={CONFIG}"]
    with (scratch / "server.log").open("w") as log:
        server = subprocess.Popen(command, cwd=course, env=_environment(course, scratch, port), stdout=log, stderr=log)
        try:
            _wait_until_it_answers(server, f"http://127.0.0.1:{port}", scratch / "server.log")
            yield f"http://127.0.0.1:{port}"
        finally:
            _end(server)


def _environment(course: Path, scratch: Path, port: int) -> dict[str, str]:
    """Every folder that Jupyter or the course writes to lies in ``scratch``."""
    own = {"HOME": "home", "TMPDIR": "tmp", "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data",
           "JUPYTER_RUNTIME_DIR": "runtime", "IPYTHONDIR": "ipython"}  # fmt: skip
    for name in own.values():
        (scratch / name).mkdir()
    settings = scratch / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false", "checkForUpdates": false}')
    others = ("JUPYTER", "NBGRADER", "TRACE_A_TENSOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return kept | {variable: str(scratch / name) for variable, name in own.items()} | {
        "JUPYTERLAB_GALATA_ROOT_DIR": str(course),
        "TRACE_A_TENSOR_HOME": str(course / ".trace-a-tensor"),
        "TRACE_A_TENSOR_BROWSER_TEST_PORT": str(port),
        "PYTHONPATH": str(ROOT),  # course_lib, from whichever checkout is tested
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def _wait_until_it_answers(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    limit = time.monotonic() + WAIT_SECONDS
    while server.poll() is None and time.monotonic() < limit:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/api/status", timeout=5):
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-3000:]}")


def _end(server: subprocess.Popen[bytes]) -> None:
    """Ask the server to stop, which stops its kernels; end whatever of its family is still there after that."""
    import psutil

    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(server.pid).children(recursive=True)
    server.terminate()
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    left = psutil.wait_procs(family, timeout=5)[1]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=5)


@contextlib.contextmanager
def browser_page(width: int = 1280, height: int = 900) -> Iterator[Any]:
    """A page of a headless Chromium.

    Raises:
        BrowserMissingError: there is none; the message says what to install.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = system_chromium()
        if path is None and not Path(playwright.chromium.executable_path).exists():
            raise BrowserMissingError(NO_BROWSER)
        browser = playwright.chromium.launch(executable_path=path, args=list(CHROMIUM))
        try:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(WAIT_SECONDS * 1000)
            yield page
        finally:
            browser.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """The notebook in front, as a reader meets it: cells by their id, keys, and what stands on the page."""

    page: Any

    @classmethod
    def open(cls, page: Any, address: str, path: str) -> Notebook:
        """Open a notebook of the course in JupyterLab and wait for its kernel."""
        page.goto(f"{address}/lab/tree/{path}")
        page.wait_for_function("window.jupyterapp !== undefined")
        notebook = cls(page=page)
        notebook.wait_for(path)
        return notebook

    @property
    def front(self) -> Any:
        """The part of the page that shows this notebook; others may be open behind it."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def wait_for(self, path: str) -> None:
        """Until the notebook of this path is in front and its kernel is idle."""
        self.page.wait_for_function(
            """path => {
                const panel = window.jupyterapp.shell.currentWidget;
                const session = panel?.sessionContext?.session;
                return panel?.context?.path === path && panel.context.isReady && session?.kernel?.status === 'idle';
            }""",
            arg=path,
        )

    def run_all(self) -> None:
        """Run every cell and wait for the last; this is what Run > Run All Cells does."""
        self._command("notebook:run-all-cells")

    def cell(self, cell_id: str) -> Any:
        """Bring a cell into view and make it the active one; the part of the page that shows it."""
        found = self.page.evaluate(
            """async id => {
                const notebook = window.jupyterapp.shell.currentWidget.content;
                const index = notebook.widgets.findIndex(cell => cell.model.id === id);
                if (index < 0) return false;
                notebook.activeCellIndex = index;
                await notebook.scrollToItem(index, 'center');
                return true;
            }""",
            cell_id,
        )
        assert found, f"no cell {cell_id!r} in this notebook"
        return self.front.locator(".jp-Cell.jp-mod-active")

    def write(self, cell_id: str, text: str) -> None:
        """Replace a cell's text at the keyboard, as a learner does."""
        editor = self.cell(cell_id).locator(".cm-content")
        editor.click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(text)
        assert self.text(cell_id) == text, "the editor holds what was typed"

    def text(self, cell_id: str) -> str:
        """What the cell's editor holds."""
        return str(
            self.page.evaluate(
                """id => window.jupyterapp.shell.currentWidget.content.widgets
                    .find(cell => cell.model.id === id).model.sharedModel.getSource()""",
                cell_id,
            )
        )

    def run(self, cell_id: str) -> Any:
        """Run one cell, wait for it, and return its output area."""
        cell = self.cell(cell_id)
        self._command("notebook:run-cell")
        return cell.locator(".jp-Cell-outputArea")

    def _command(self, name: str) -> None:
        """A command of JupyterLab, awaited, but not for ever."""
        self.page.evaluate(
            """([name, milliseconds]) => Promise.race([
                window.jupyterapp.commands.execute(name),
                new Promise((_, fail) => setTimeout(() => fail(new Error(`${name} takes too long`)), milliseconds)),
            ]).then(() => null)""",
            [name, WAIT_SECONDS * 1000],
        )

    def errors(self) -> list[str]:
        """What cells raised, wherever they are in the notebook."""
        return list(
            self.page.evaluate(
                """() => window.jupyterapp.shell.currentWidget.content.widgets
                    .filter(cell => cell.model.type === 'code')
                    .flatMap(cell => cell.model.outputs.toJSON())
                    .filter(output => output.output_type === 'error')
                    .map(output => `${output.ename}: ${output.evalue}`)"""
            )
        )

    def settle(self) -> None:
        """Until every cell is drawn, every formula set and nothing has moved for ten frames."""
        self.page.wait_for_function(
            """async () => {
                const notebook = window.jupyterapp.shell.currentWidget.content;
                if (!notebook.widgets.every(cell => cell.isAttached && !cell.isPlaceholder())) return false;
                const cells = [...document.querySelectorAll('.jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell')];
                if (cells.length !== notebook.model.cells.length) return false;
                const height = () => cells.reduce((sum, cell) => sum + cell.getBoundingClientRect().height, 0);
                const before = height();
                for (let i = 0; i < 10; i++) await new Promise(requestAnimationFrame);
                return before === height();
            }"""
        )

    def close(self) -> None:
        """Stop the notebook's kernel; the next one finds the memory free."""
        self.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
