"""`python -m principal_attention.installs`: let timm and torchvision be imported first, beside a CPU build of torch.

Where `import torchvision` fails on its missing operators (see `torchvision.py`), a `.pth` file in site-packages imports
this package when Python starts, which takes milliseconds and does not import torch. Elsewhere nothing is written.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

FILE = "principal_attention_torchvision.pth"  # read after the .pth file of an editable install, in alphabetical order
LINE = (
    'import importlib.util; importlib.util.find_spec("principal_attention") and '
    'importlib.import_module("principal_attention")\n'
)


def main() -> int:
    asked = [sys.executable, "-c", "import torchvision"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode == 0 or last.startswith("ModuleNotFoundError: No module named 'torchvision'"):
        return 0
    if "torchvision::" not in last:
        print(f"torchvision cannot be imported here, and this is not what can be mended: {last}", file=sys.stderr)
        return 1
    path = Path(sysconfig.get_path("purelib")) / FILE
    try:
        path.write_text(LINE, encoding="utf-8")
    except OSError as wrong:
        print(f"{path} could not be written ({wrong.strerror}); torchvision stays as it is", file=sys.stderr)
        return 1
    print(f"this torchvision was not built for this torch; {path} mends it when Python starts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
