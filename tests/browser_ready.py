"""Is there a browser for the browser test? Exit status 0 when a system Chromium is found."""

from __future__ import annotations

import shutil
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def system_chromium() -> str | None:
    """Path of an installed Chromium or Chrome, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


if __name__ == "__main__":
    sys.exit(0 if system_chromium() else 1)
