"""What happens when another library is imported after this package.

`import principal_attention` needs torch alone, so what concerns other libraries waits until they come.
"""

import importlib.util
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Execute = Callable[[ModuleType], None]
Act = Callable[[Execute, ModuleType], None]  # executes the module, and does what there is to do around that


class _Finder(MetaPathFinder):
    """Stands before the usual finders and wraps the execution of the modules it waits for."""

    def __init__(self, waiting: dict[str, Act]):
        self._waiting, self._asking = waiting, set[str]()

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in self._waiting or fullname in self._asking:
            return None
        self._asking.add(fullname)  # the usual finders are asked through here again
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking.discard(fullname)
        if spec is not None and spec.loader is not None:  # a spec may be asked for and never executed
            execute = spec.loader.exec_module

            def run(module: ModuleType) -> None:
                self._waiting.get(fullname, lambda execute, module: execute(module))(execute, module)
                self._waiting.pop(fullname, None)  # an import that failed may be tried again

            spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec


def watch(acts: dict[str, Act]) -> None:
    """Act when one of these modules is imported; those that are there already are not waited for."""
    sys.meta_path.insert(0, _Finder({name: act for name, act in acts.items() if name not in sys.modules}))
