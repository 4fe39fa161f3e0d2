"""Command line `principal`."""

import os
import sys


def main() -> None:
    """Entry point of `principal`."""
    try:
        from .app import app
    except ModuleNotFoundError as missing:
        print(
            f"principal: the command line needs {missing.name}: pip install 'principal-attention[report]'",
            file=sys.stderr,
        )
        raise SystemExit(1) from None
    code: object = 0
    try:
        app()
    except SystemExit as end:
        code = end.code
    except OSError as wrong:  # error of writing the help, outside of commands
        code = _unwritten(wrong)
    try:
        sys.stdout.flush()
    except OSError as wrong:
        code = _unwritten(wrong)
    raise SystemExit(code)


def _unwritten(wrong: OSError) -> int:
    """Report that the output could not be written, discard the rest of it, and return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(wrong, BrokenPipeError):  # the reader, such as head, has closed the pipe
        print(f"principal: the output could not be written ({wrong.strerror})", file=sys.stderr)
    return 1
