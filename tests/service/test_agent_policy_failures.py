"""The bundled agent in the real engine when the provider fails: what is discarded, retried, waited for and told."""

import json
from typing import Any

import pytest

from rss_policy.engine import MontyEngine
from rss_policy.transcripts import facts_of, recording_of
from tests.fakes.agent_host import AgentHost, Stream, answer, failure
from tests.fakes.chat_wire import calls, chunk, ending
from tests.pure.test_transcripts import FIXTURES
from tests.service.test_agent_policy import engine, play, tool

__all__ = ["engine"]

Json = dict[str, Any]
GOOD = Stream([chunk(content="ok"), ending()])


def refusal(status: int, code: str = "", **headers: str) -> Json:
    return answer(json.dumps({"error": {"message": "no", "code": code}}), status, headers)


def test_a_failed_attempt_is_discarded_by_event_before_the_next_begins(engine: MontyEngine) -> None:
    host = AgentHost([Stream([chunk(content="Hel"), b""], "network_error"), GOOD])
    result = play(engine, host)
    assert [event["type"].removeprefix("model.") for event in host.events] == [
        "started", "delta", "discarded", "started", "delta", "completed",
    ]  # fmt: skip
    discarded = host.of("model.discarded")[0]
    assert (discarded["turn"], discarded["attempt"], discarded["reason"]) == (1, 1, "network")
    assert discarded["error"]["code"] == "provider_network_error"
    assert host.sleeps == [discarded["retry_in_ms"]]
    assert result["output"]["content"] == [{"type": "text", "text": "ok"}]


def test_a_provider_that_says_how_long_to_wait_is_believed(engine: MontyEngine) -> None:
    host = AgentHost(
        [refusal(429, **{"retry-after": "3"}), refusal(429, **{"retry-after": "Tue, 14 Nov 2023 22:13:25 GMT"}), GOOD]
    )
    play(engine, host)
    assert host.sleeps == [3_000, 5_000]


@pytest.mark.parametrize(
    ("failed", "code", "kind"),
    [
        (refusal(401), "provider_auth", "auth"),
        (refusal(429, "insufficient_quota"), "provider_quota", "quota"),
        (refusal(400, "context_length_exceeded"), "context_overflow", "overflow"),
        (refusal(400), "provider_refused", "client"),
        (failure("missing_secret"), "missing_secret", "auth"),
        (failure("refused_url"), "refused_url", "client"),
        (failure("stopped"), "stopped", "other"),
    ],
)
def test_what_will_not_get_better_fails_the_run_at_once(engine: MontyEngine, failed: Json, code: str, kind: str) -> None:
    host = AgentHost([failed])
    result = play(engine, host)
    assert (result["output"], result["error"]["code"], result["error"]["kind"]) == (None, code, kind)
    assert host.of("model.discarded")[0]["retry_in_ms"] is None
    assert host.sleeps == []


def test_retries_end_and_the_last_failure_is_the_runs(engine: MontyEngine) -> None:
    host = AgentHost([refusal(500)] * 6)
    result = play(engine, host)
    assert result["error"] == {"code": "provider_server_error", "message": "no", "kind": "server", "status": 500}
    assert (len(host.requests), len(host.sleeps)) == (6, 5)


def test_the_runs_own_limit_of_retries_holds(engine: MontyEngine) -> None:
    host = AgentHost([refusal(500)] * 3)
    assert play(engine, host, limits={"max_retries": 2})["error"]["kind"] == "server"
    assert len(host.requests) == 3


def test_after_a_crash_the_attempt_is_made_again_without_a_wait(engine: MontyEngine) -> None:
    host = AgentHost([Stream([chunk(content="He"), b""], "interrupted"), failure("interrupted"), GOOD])
    assert play(engine, host, limits={"max_retries": 0})["error"] is None
    assert host.sleeps == []
    assert [event["reason"] for event in host.of("model.discarded")] == ["interrupted", "interrupted"]


def test_a_stream_that_is_cut_is_never_a_short_answer(engine: MontyEngine) -> None:
    host = AgentHost([Stream([chunk(content="The answer is 4")]), Stream([calls(("a", "add", '{"x":1}'))]), GOOD])
    result = play(engine, host, tool_schemas=[tool("add")])
    assert [event["reason"] for event in host.of("model.discarded")] == ["network", "network"]
    assert host.tool_calls == []
    assert result["output"]["content"][0]["text"] == "ok"


def test_an_answer_that_was_whole_before_the_connection_broke_counts(engine: MontyEngine) -> None:
    host = AgentHost([Stream([chunk(content="ok"), ending()], "network_error")])
    assert play(engine, host)["finish_reason"] == "stop"
    assert host.of("model.discarded") == []


def test_an_error_inside_a_stream_is_retried_and_what_it_used_is_billed(engine: MontyEngine) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    told = b'data: {"error": {"message": "Overloaded", "type": "overloaded_error"}}\n\n'
    host = AgentHost([Stream([chunk(content="He", usage=usage), told]), GOOD])
    play(engine, host)
    discarded = host.of("model.discarded")[0]
    assert (discarded["reason"], discarded["usage"]["output_tokens"]) == ("overload", 1)
    assert discarded["usage"]["cost_micros"] == 12


def test_garbage_is_retried_a_few_times_and_then_told(engine: MontyEngine) -> None:
    host = AgentHost([answer("<html>hello</html>")] * 4)
    assert play(engine, host)["error"]["code"] == "provider_protocol"
    assert len(host.requests) == 4


def test_a_session_works_after_a_turn_that_the_provider_broke(engine: MontyEngine) -> None:
    call = {"type": "tool_call", "id": "a", "name": "add", "arguments": {}, "raw_arguments": "{{"}
    history = [{"role": "assistant", "content": [{"type": "text", "text": "par"}, call], "aborted": True}]
    host = AgentHost([GOOD])
    assert play(engine, host, messages=history)["error"] is None
    assert host.requests[0]["body"]["messages"] == [
        {"role": "assistant", "content": "par"},
        {"role": "user", "content": "hello"},
    ]


RECORDINGS = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((FIXTURES / "openai_chat").glob("*.json"))]


@pytest.mark.parametrize("row", RECORDINGS, ids=lambda row: row["id"])
def test_the_engine_reads_every_recording_as_plain_python_does(engine: MontyEngine, row: Json) -> None:
    recording = recording_of(row)
    given = Stream([recording.body.encode() + b"\n"]) if recording.stream else answer(recording.body, recording.status)
    host = AgentHost([given])
    names = ("add", "sub", "mul", "now", "get_weather")
    result = play(engine, host, limits={"max_retries": 0}, tool_schemas=[tool(name, client=True) for name in names])
    expected = recording.expect
    assert expected is not None
    if expected.error is not None:
        assert result["error"]["kind"] == expected.error
        return
    completed = host.of("model.completed")[0]
    found = facts_of({**completed, "message": completed["message"]})
    assert (found.text, found.reasoning, found.refusal) == (expected.text, expected.reasoning, expected.refusal)
    assert (found.usage, found.stop) == (expected.usage, expected.stop)
    assert [(call.id, call.name) for call in found.calls] == [(call.id, call.name) for call in expected.calls]
