"""Runs a function after another module has been imported, without importing it."""

import importlib.util
import sys
from typing import Any


class _Finder:
    """Finds the module with the other finders, and wraps its loader to call `then` once after it."""

    def __init__(self, name, then):
        self._name, self._then = name, then

    def find_spec(self, name, path=None, target=None):
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = _Loader(spec.loader, self._then)
            spec.loader = loader
        return spec


class _Loader:
    def __init__(self, loader, then):
        self._loader, self._then = loader, then

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._then()


def on_import(name, then):
    """Calls then() immediately if the module is already imported, otherwise after its import."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _Finder(name, then))
