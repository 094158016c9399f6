"""The command line: ``trace-tensor bill``, ``trace``, ``roofline``, ``new``, ``doctor``."""

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script; what a command needs is imported when it runs."""
    from course_lib.cli.app import app

    app(prog_name="trace-tensor")
