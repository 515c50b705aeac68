from __future__ import annotations

import threading

from dragoman.tools import ToolRun


def test_a_budget_holds_under_many_threads() -> None:
    run, spent = ToolRun(), []
    together = threading.Barrier(8)

    def spend() -> None:
        together.wait()
        spent.extend(run.spend("f", 50) for _ in range(50))

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spent.count(True) == run.counts["f"] == 50
    assert run.spend("g", None)
