"""The command `principal`."""

import os
import sys


def main() -> None:
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
    except OSError as wrong:  # of what is printed before a command begins, as its help
        code = _unwritten(wrong)
    try:
        sys.stdout.flush()
    except OSError as wrong:
        code = _unwritten(wrong)
    raise SystemExit(code)


def _unwritten(wrong: OSError) -> int:
    """The output goes nowhere: say so, and drop what is left of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(wrong, BrokenPipeError):  # whoever read along has enough
        print(f"principal: the output could not be written ({wrong.strerror})", file=sys.stderr)
    return 1
