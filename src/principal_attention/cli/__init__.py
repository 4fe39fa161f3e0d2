"""The command `principal`."""

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
    app()
