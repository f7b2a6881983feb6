"""`http`: a service that answers, fails, waits and lies, on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from stepmark import Problem, StepItem
from stepmark.errors import ConfigError, DataError, VerifierError
from stepmark.prm import http, load_scorer

Answer = tuple[int, Any]
ITEMS = [
    StepItem(Problem(f"p{n}", f"What is {n} + 1?", None), (f"{n} + 1 = {n + 1}", "so"))
    for n in range(12)
]


class Service:
    """Answers by a function of the request and of how often that request was made before."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.headers: list[str | None] = []
        self.answer: Callable[[dict[str, Any], int], Answer] = lambda asked, _: (200, good(asked))
        self.hold = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                before = service.asked.count(asked)
                service.asked.append(asked)
                service.headers.append(self.headers.get("Authorization"))
                status, body = service.answer(asked, before)
                if status < 0:  # an answer that breaks off
                    self.send_response(-status)
                    self.send_header("Content-Length", "99")
                    self.end_headers()
                    self.wfile.write(b"{")
                    return
                if status == 0:  # no answer until the test is over
                    service.hold.wait(10)
                    return
                content = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/score"


def good(asked: dict[str, Any]) -> dict[str, Any]:
    return {"scores": [0.75, 0.5][: len(asked["steps"])]}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr(http, "FIRST_PAUSE_S", 0.01)
    made = Service()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.hold.set()
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def scorer(service: Service, **settings: Any) -> Any:
    return load_scorer({"name": "http", "url": service.url, **settings})


def test_a_service_gets_problem_and_steps_and_gives_scores(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "open sesame")
    made = scorer(service, token_env="MY_TOKEN")
    found = made.score(ITEMS)
    assert [row.scores for row in found] == [(0.75, 0.5)] * 12
    assert {"problem": "What is 3 + 1?", "steps": ["3 + 1 = 4", "so"]} in service.asked
    assert set(service.headers) == {"Bearer open sesame"}
    assert made.score(ITEMS) == found
    assert len(service.asked) == 12, "what was scored is looked up"


def test_a_failure_that_passes_is_tried_again(service: Service) -> None:
    service.answer = lambda asked, before: (503, {}) if before < 2 else (200, good(asked))
    assert scorer(service).score(ITEMS[:1])[0].scores == (0.75, 0.5)
    assert len(service.asked) == 3


def test_few_failures_abstain_and_many_refuse_the_run(service: Service) -> None:
    service.answer = lambda asked, _: (
        (500, {}) if "What is 3 +" in asked["problem"] else (200, good(asked))
    )
    made = scorer(service, tries=2)
    found = made.score(ITEMS)
    assert [row.scores for row in found].count((None, None)) == 1
    assert found[3].scores == (None, None)
    with pytest.raises(VerifierError, match=r"did not score 1 of 2 solutions: status 500"):
        made.score(ITEMS[3:5])
    service.answer = lambda asked, _: (200, good(asked))
    assert made.score(ITEMS[3:5])[0].scores == (0.75, 0.5), "an abstention is not remembered"


def test_no_answer_within_the_deadline_is_a_failure(service: Service) -> None:
    service.answer = lambda asked, before: (0, None)
    with pytest.raises(VerifierError, match=r"did not score 1 of 1 solutions: .*timed out"):
        scorer(service, deadline_s=0.2).score(ITEMS[:1])


def test_nobody_there_is_a_failure_that_says_so(service: Service) -> None:
    made = load_scorer({"name": "http", "url": "http://127.0.0.1:9/score", "tries": 2})
    with pytest.raises(VerifierError, match="refused"):
        made.score(ITEMS[:1])


def test_a_refusal_is_not_tried_again(service: Service) -> None:
    service.answer = lambda asked, before: (401, {"error": "no token"})
    with pytest.raises(VerifierError, match=r"refuses with status 401: .*no token"):
        scorer(service).score(ITEMS[:1])
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    "body",
    [b"<html>", [0.5, 0.5], {"scores": [0.5]}, {"scores": [0.5, 1.5]}, {"scores": ["0.5", 1]}, {}],
)
def test_a_reply_that_is_no_score_per_step_is_refused(service: Service, body: Any) -> None:
    service.answer = lambda asked, before: (200, body)
    with pytest.raises(DataError, match=r"for 2 steps of 'p0'; it must reply an object"):
        scorer(service).score(ITEMS[:1])
    assert len(service.asked) == 1


@pytest.mark.parametrize("scores", [[0.5], [0.5, 1.5], [0.5, "yes"], "0.5 0.5"])
def test_a_chat_model_that_miscounts_is_asked_again_and_stops_no_other_solution(
    service: Service, scores: Any
) -> None:
    def answer(asked: dict[str, Any], before: int) -> Answer:
        steps = json.loads(asked["messages"][1]["content"])["steps"]
        found = scores if steps[0] == "0 + 1 = 1" else [1, 0]
        return 200, {"choices": [{"message": {"content": json.dumps({"scores": found})}}]}

    service.answer = answer
    rows = scorer(service, api="chat", model="judge", tries=2).score(ITEMS)
    assert [row.failed for row in rows] == [True, *[False] * 11]
    assert len(service.asked) == 13


def test_a_number_beyond_any_float_is_no_score(service: Service) -> None:
    service.answer = lambda asked, before: (200, b'{"scores": [1' + b"0" * 400 + b", 1]}")
    with pytest.raises(DataError, match="must reply an object"):
        scorer(service).score(ITEMS[:1])


def test_what_was_scored_is_remembered_where_another_reply_is_refused(service: Service) -> None:
    service.answer = lambda asked, before: (200, good(asked) if asked["steps"][0] > "1" else {})
    made = scorer(service)
    with pytest.raises(DataError, match="must reply an object"):
        made.score(ITEMS)
    service.asked.clear()
    made.score(ITEMS[1:])
    assert service.asked == []


def test_a_chat_model_is_asked_for_the_same_object(service: Service) -> None:
    def answer(asked: dict[str, Any], before: int) -> Answer:
        text = '```json\n{"scores": [1, 0]}\n```' if before else "I think that all is well."
        return 200, {"choices": [{"message": {"content": text}}]}

    service.answer = answer
    made = scorer(service, api="chat", model="judge")
    assert made.score(ITEMS[:1])[0].scores == (1.0, 0.0)
    assert service.asked[0]["model"] == "judge"
    assert json.loads(service.asked[0]["messages"][1]["content"])["steps"] == ["0 + 1 = 1", "so"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "localhost:8000"}, "begins with http"),
        ({"api": "chat"}, "a model is named with 'chat'"),
        ({"model": "m"}, "and only there"),
        ({"api": "soap"}, "'json' or 'chat'"),
        ({"tries": 0}, "tries = 0"),
        ({"splitter": "words"}, "splitter"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: Any, said: str) -> None:
    with pytest.raises((ConfigError, LookupError), match=said):
        load_scorer({"name": "http", "url": "http://localhost:1/x", **settings})


def test_an_answer_that_breaks_off_is_tried_again(service: Service) -> None:
    service.answer = lambda asked, before: (200 if before else -200, good(asked))
    assert scorer(service).score(ITEMS[:1])[0].scores == (0.75, 0.5)
    service.answer = lambda asked, _: (-200, None)
    with pytest.raises(VerifierError, match=r"did not score 1 of 1 solutions: IncompleteRead"):
        scorer(service).score(ITEMS[1:2])


@pytest.mark.parametrize("status", [408, 425, 429, 500, 501, 520, 529, 599])
def test_every_status_of_a_service_in_trouble_is_tried_again(service: Service, status: int) -> None:
    service.answer = lambda asked, before: (200 if before else status, good(asked))
    assert scorer(service).score(ITEMS[:1])[0].scores == (0.75, 0.5)


def test_what_was_scored_before_the_run_was_refused_is_not_asked_again(service: Service) -> None:
    def answer(asked: dict[str, Any], before: int) -> Answer:
        return (500, {}) if "What is 3 +" in asked["problem"] and not before else (200, good(asked))

    service.answer = answer
    made = scorer(service, tries=1, max_error_share=0)
    with pytest.raises(VerifierError, match="did not score 1 of 12"):
        made.score(ITEMS)
    assert [row.scores for row in made.score(ITEMS)] == [(0.75, 0.5)] * 12
    assert len(service.asked) == 13


def test_a_failure_is_told_from_steps_that_a_service_has_no_score_for(service: Service) -> None:
    def answer(asked: dict[str, Any], before: int) -> Answer:
        return (503, {}) if "What is 3 +" in asked["problem"] else (200, {"scores": [None, None]})

    service.answer = answer
    found = scorer(service, tries=1).score(ITEMS)
    assert {row.scores for row in found} == {(None, None)}
    assert [n for n, row in enumerate(found) if row.failed] == [3]
