"""FileStore for the tests with several processes."""

from __future__ import annotations

from pathlib import Path

from dragoman.errors import SnapshotNotFoundError
from dragoman.stores.file import FileStore
from tests.stores.backends import Backend

__all__ = ["BACKEND", "litter"]


def litter(place: Path) -> list[str]:
    """Everything that belongs to no conversation, and every byte behind what counts."""
    store = place / "store"
    heads = {path.stem for path in store.glob("heads/*.head")}
    found = [path.name for path in store.rglob("*") if path.suffix in {".tmp", ".gone"}]
    logs: dict[str, Path] = {}
    for path in store.glob("logs/*"):
        root = path.name.partition(".")[0]
        if root not in heads or (path.suffix == ".log" and root in logs):
            found.append(path.name)
        elif path.suffix == ".log":
            logs[root] = path
    for root, path in logs.items():
        length = int.from_bytes((store / "heads" / f"{root}.head").read_bytes()[60:68], "big")
        if path.stat().st_size != length:
            found.append(f"{path.name}: {path.stat().st_size} bytes, {length} count")
    with FileStore(store) as opened:
        for path in store.glob("ids/*/*"):
            try:
                opened.load(path.name.partition(".")[0])
            except SnapshotNotFoundError:
                found.append(path.name)
            except Exception:  # noqa: BLE001 - sealed: it is there
                continue
    return sorted(found)


BACKEND = Backend(open=lambda place: FileStore(place / "store"), litter=litter)
