"""`dragoman batch`: handed in, listed, waited for, fetched, cancelled and forgotten."""

from __future__ import annotations

from dragoman.simulator import Request, Status
from tests.cli.running import MODEL, Surroundings


def script(request: Request) -> str | Status:
    return Status(400, "not this one") if request.last_user_text == "bad" else f"You said: {request.last_user_text}"


def test_submit_wait_and_results(around: Surroundings) -> None:
    (around.work / "questions.txt").write_text("one\n\ntwo\n")
    with around.talking(script) as simulator:
        url = simulator.base_url("openai")
        submitted = around.here("batch", "submit", "-m", MODEL, "--base-url", url, "-s", "Be brief.", "questions.txt")
        assert submitted.code == 0
        id = submitted.out.strip()
        assert around.here("batch", "results", id).ended(1, "is not over")
        assert around.here("batch", "status", id).out == "done, 2 of 2 answered\n"
        assert around.here("batch", "wait", id).out == "done, 2 of 2 answered\n"
        done = around.here("batch", "results", id)
        assert done.lines == [
            {"question": "one", "answer": "You said: one"},
            {"question": "two", "answer": "You said: two"},
        ]
        assert {request.system for request in simulator.requests if request.user_texts} == {"Be brief."}
        (listed,) = around.here("batch", "--json").json
        assert (listed["id"], listed["model"], listed["questions"]) == (id, MODEL, 2)
        assert around.here("batch", "forget", id).code == 0
        assert around.here("batch", "status", id).ended(2, "There is no batch")
    assert around.here("batch").err == "There are no batches.\n"


def test_failed_questions_are_reported_and_cancelling_keeps_the_rest(around: Surroundings) -> None:
    with around.talking(script) as simulator:
        given = ("batch", "submit", "-m", MODEL, "--base-url", simulator.base_url("openai"))
        done = around.here(*given, "--wait", stdin="good\nbad\n")
        assert done.code == 1
        assert [sorted(line) for line in done.lines] == [["answer", "question"], ["error", "question"]]
        assert "1 of 2 questions have no answer." in done.err
        id = around.here(*given, stdin="one\ntwo\nthree\n").out.strip()
        assert around.here("batch", "cancel", id).out.startswith("cancelled, 0 of 3")
        assert around.here(*given, stdin="\n").ended(2, "There are no questions")
