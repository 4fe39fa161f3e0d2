"""Run functions when another library is imported.

`import principal_attention` needs torch only, so code that concerns other libraries runs when they are imported.
"""

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Execute = Callable[[ModuleType], None]
Act = Callable[[Execute, ModuleType], None]  # executes the module, with additional work before or after


class _Finder(MetaPathFinder):
    """Import finder that wraps the execution of the modules in `waiting`."""

    def __init__(self, waiting: dict[str, Act]):
        self._waiting, self._asking = waiting, set[str]()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in self._waiting or fullname in self._asking:
            return None
        self._asking.add(fullname)  # find_spec calls this finder again
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking.discard(fullname)
        if spec is not None and spec.loader is not None:  # a spec may be requested and never executed
            execute = spec.loader.exec_module

            def run(module: ModuleType) -> None:
                self._waiting.get(fullname, lambda execute, module: execute(module))(execute, module)
                self._waiting.pop(fullname, None)  # only after success, since a failed import may be repeated

            spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec


def watch(acts: dict[str, Act]) -> None:
    """Call the function of a module when the module is imported. Modules that are already imported are ignored."""
    sys.meta_path.insert(0, _Finder({name: act for name, act in acts.items() if name not in sys.modules}))
