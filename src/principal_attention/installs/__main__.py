"""`python -m principal_attention.installs`: make `import torchvision` work with a CPU build of torch.

If `import torchvision` fails because of missing operators (see `torchvision.py`), this command writes a `.pth` file to
site-packages, which imports this package when Python starts; that takes milliseconds and does not import torch.
Otherwise nothing is written.
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

FILE = "principal_attention_torchvision.pth"  # sorts after the .pth file of an editable install
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
        print(f"torchvision cannot be imported, and this command cannot fix its error: {last}", file=sys.stderr)
        return 1
    path = Path(sysconfig.get_path("purelib")) / FILE
    try:
        path.write_text(LINE, encoding="utf-8")
    except OSError as wrong:
        print(f"{path} could not be written ({wrong.strerror}); torchvision was not fixed", file=sys.stderr)
        return 1
    print(f"torchvision was built for another torch; {path} fixes its import when Python starts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
