"""The Jupyter server of the browser test: JupyterLab's own test settings, one port, nothing asked of the network.

Read by ``jupyter lab --config``; Jupyter puts ``get_config`` into the namespace.
"""

from __future__ import annotations

import os
from typing import Any


def configure(c: Any) -> None:
    """Galata's settings (no token, ``window.jupyterapp`` in the page), on loopback and on the port we were given."""
    from jupyterlab.galata import configure_jupyter_server

    configure_jupyter_server(c)
    c.ServerApp.ip = "127.0.0.1"
    c.ServerApp.port = int(os.environ["TRACE_A_TENSOR_BROWSER_TEST_PORT"])
    c.ServerApp.allow_root = True
    c.ServerApp.terminals_enabled = False
    c.LabApp.news_url = None
    c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"


if "get_config" in globals():
    configure(globals()["get_config"]())
