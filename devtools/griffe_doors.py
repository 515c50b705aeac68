"""For the reference in the documentation: what the stub of a room imports is what the room offers."""

from __future__ import annotations

from griffe import Extension, Module


class Doors(Extension):
    """Makes the names in `__init__.pyi` public members of their room."""

    def on_package(self, *, pkg: Module, **_: object) -> None:
        for module in (pkg, *pkg.modules.values()):
            if module.is_init_module and not module.exports:
                module.exports = [name for name in module.imports if name != "open_door"]
