"""The server process as the `openai` SDK sees it, from the client through a policy run to a provider and back."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.fakes.grammar import faults
from tests.fakes.provider import Answer, FakeProvider, Reasoning, Refusal, Status, Text, ToolCall, Usage, calls, says
from tests.service.served import HELLO, Served, serving

HI: Any = [{"role": "user", "content": "hi"}]
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell the weather.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]
ONCE: Any = {"limits": {"max_retries": 0}}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("served")) as it:
        yield it


@pytest.fixture(autouse=True)
def provider(served: Served) -> FakeProvider:
    return served.provider.clear()


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with served.openai() as client:
        yield client


def create(client: openai.OpenAI, messages: Any = HI, **more: Any) -> Any:
    return client.chat.completions.create(model="default", messages=messages, **more)


def text(chunks: list[Any]) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_a_plain_completion_has_what_the_provider_said_and_its_usage(client: openai.OpenAI, provider: FakeProvider) -> None:
    provider.then(Answer((Text("Grüße, 🙂 world."),), usage=Usage(31, 17, cached=5, reasoning=3)))
    answer = create(client)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("Grüße, 🙂 world.", "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (31, 17, 48)
    assert answer.usage.prompt_tokens_details.cached_tokens == 5
    assert answer.usage.completion_tokens_details.reasoning_tokens == 3


def test_a_stream_has_the_role_the_same_text_in_deltas_and_the_reason(client: openai.OpenAI, provider: FakeProvider) -> None:
    provider.then(says("one two three four", pace=0.05))
    chunks = list(create(client, stream=True))
    assert (chunks[0].choices[0].delta.role, chunks[-1].choices[0].finish_reason) == ("assistant", "stop")
    assert text(chunks) == "one two three four"
    assert len([chunk for chunk in chunks if chunk.choices[0].delta.content]) > 1
    assert all(chunk.usage is None for chunk in chunks)


def test_deltas_come_while_the_provider_still_speaks(client: openai.OpenAI, provider: FakeProvider) -> None:
    provider.then(says("one two three", pace=0.3))
    began = time.monotonic()
    with create(client, stream=True) as stream:
        first = next(chunk for chunk in stream if chunk.choices[0].delta.content)
        seen_after = time.monotonic() - began
        rest = list(stream)
    assert (first.choices[0].delta.content + text(rest)).startswith("one two")
    assert seen_after < time.monotonic() - began - 0.3


def test_usage_is_the_last_chunk_where_it_was_asked_for(client: openai.OpenAI, provider: FakeProvider) -> None:
    provider.then(Answer((Text("Hi."),), usage=Usage(31, 17)))
    *chunks, last = create(client, stream=True, stream_options={"include_usage": True})
    assert (last.choices, last.usage.total_tokens) == ([], 48)
    assert all(chunk.usage is None for chunk in chunks)


@pytest.mark.parametrize("by", ["header", "metadata"])
@pytest.mark.parametrize("stream", [False, True])
def test_the_second_turn_of_a_session_knows_the_first(
    served: Served, client: openai.OpenAI, by: str, *, stream: bool
) -> None:
    name = f"two-turns-{by}-{stream}"
    where: Any = {"extra_headers": {"X-Session-Id": name}} if by == "header" else {"metadata": {"session_id": name}}
    for word in ("first", "second"):
        answer = create(client, [{"role": "user", "content": word}], stream=stream, **where)
        assert (text(list(answer)) if stream else answer.choices[0].message.content) == HELLO
    assert served.asked_of_the_model() == [("user", "first"), ("assistant", HELLO), ("user", "second")]
    assert served.transcript(name) == [("user", "first"), ("assistant", HELLO), ("user", "second"), ("assistant", HELLO)]


def test_a_client_that_sends_its_whole_history_into_a_session_has_nothing_twice(
    served: Served, client: openai.OpenAI
) -> None:
    where: Any = {"extra_headers": {"X-Session-Id": "whole-history"}}
    history: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "first"}]
    answer = create(client, history, **where)
    history += [{"role": "assistant", "content": answer.choices[0].message.content}, {"role": "user", "content": "second"}]
    create(client, history, **where)
    assert served.asked_of_the_model() == [
        ("system", "Be brief."), ("user", "first"), ("assistant", HELLO), ("user", "second")
    ]  # fmt: skip


def test_without_a_session_the_request_is_the_whole_history_and_is_on_record(served: Served, client: openai.OpenAI) -> None:
    history: Any = [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": "second"},
    ]
    raw = client.chat.completions.with_raw_response.create(model="default", messages=history)
    assert served.asked_of_the_model() == [("user", "first"), ("assistant", "answer"), ("user", "second")]
    session = raw.headers["X-Session-Id"]
    assert served.get(f"/v1/sessions/{session}")["ephemeral"] is True
    assert served.transcript(session)[-2:] == [("user", "second"), ("assistant", HELLO)]
    assert session not in [row["session_id"] for row in served.get("/v1/sessions?limit=200")["data"]]


@pytest.mark.parametrize("session", [None, "tools"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_of_the_client_goes_there_and_its_result_comes_back(
    served: Served, client: openai.OpenAI, session: str | None, *, stream: bool
) -> None:
    where: Any = {"extra_headers": {"X-Session-Id": f"{session}-{stream}"}} if session else {}
    served.provider.then(calls("weather", {"city": "Oslo"}, "call_7"), says("It rains in Oslo."))
    call = _call(create(client, tools=TOOLS, stream=stream, **where), stream=stream)
    assert (call["id"], call["function"]["name"]) == ("call_7", "weather")
    assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
    result = {"role": "tool", "tool_call_id": call["id"], "content": "rain, 7 degrees"}
    history: Any = [*HI, {"role": "assistant", "content": None, "tool_calls": [call]}, result]
    answer = create(client, history, tools=TOOLS, stream=stream, **where)
    assert (text(list(answer)) if stream else answer.choices[0].message.content) == "It rains in Oslo."
    sent = served.provider.requests[-1].body
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool"]
    assert (sent["messages"][1]["tool_calls"][0]["id"], sent["messages"][2]["tool_call_id"]) == ("call_7", "call_7")
    assert plain_result(sent["messages"][2]) == "rain, 7 degrees"
    assert sent["tools"] == TOOLS


@pytest.mark.parametrize("by", ["completion", "run"])
def test_a_result_that_comes_alone_into_its_session_has_the_name_of_the_call_on_record(
    served: Served, client: openai.OpenAI, by: str
) -> None:
    where: Any = {"extra_headers": {"X-Session-Id": f"alone-{by}"}}
    served.provider.then(calls("weather", {"city": "Oslo"}, "call_7"), says("It rains in Oslo."))
    create(client, tools=TOOLS, **where)
    if by == "completion":
        create(client, [{"role": "tool", "tool_call_id": "call_7", "content": "rain"}], tools=TOOLS, **where)
    else:
        result = {"role": "tool", "call_id": "call_7", "content": "rain"}
        served.ended(served.post("/v1/runs", {"session_id": f"alone-{by}", "input": [result]}, 202)["run_id"])
    rows = served.get(f"/v1/sessions/alone-{by}/messages")["data"]
    assert [row["role"] for row in rows] == ["user", "assistant", "tool", "assistant"]
    assert (rows[2]["message"]["name"], rows[2]["message"]["content"]) == ("weather", "rain")
    sent = served.provider.requests[-1].body
    assert faults("openai_chat", sent) == []
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "tool"]


def plain_result(message: Any) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def _call(answer: Any, *, stream: bool) -> Any:
    """Return the one tool call of an answer as the client would send it back."""
    if not stream:
        assert answer.choices[0].finish_reason == "tool_calls"
        found = answer.choices[0].message.tool_calls
        assert len(found) == 1
        return found[0].model_dump(exclude_none=True)
    chunks = list(answer)
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    pieces = [piece for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or []]
    assert {piece.index for piece in pieces} == {0}
    function = {"name": pieces[0].function.name, "arguments": "".join(piece.function.arguments or "" for piece in pieces)}
    return {"id": pieces[0].id, "type": "function", "function": function}


def test_two_calls_at_once_come_apart_by_their_index(client: openai.OpenAI, provider: FakeProvider) -> None:
    both = (Text("Let me look."), ToolCall("weather", '{"city": "Oslo"}', "a"), ToolCall("weather", '{"city": "Rome"}', "b"))
    provider.then(Answer(both, piece=4))
    chunks = list(create(client, tools=TOOLS, stream=True))
    arguments: dict[int, str] = {}
    ids: dict[int, str] = {}
    for piece in (piece for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or []):
        arguments[piece.index] = arguments.get(piece.index, "") + (piece.function.arguments or "")
        ids.setdefault(piece.index, piece.id)
    assert (text(chunks), ids) == ("Let me look.", {0: "a", 1: "b"})
    assert arguments == {0: '{"city": "Oslo"}', 1: '{"city": "Rome"}'}


def test_a_call_of_a_tool_that_nobody_has_is_told_to_the_model_and_not_to_the_client(
    served: Served, client: openai.OpenAI
) -> None:
    served.provider.then(calls("missing", {}, "call_9"), says("Then without."))
    answer = create(client, tools=TOOLS)
    assert (answer.choices[0].message.content, answer.choices[0].message.tool_calls) == ("Then without.", None)
    role, told = served.asked_of_the_model()[-1]
    assert (role, "missing" in told) == ("tool", True)


def test_reasoning_is_apart_from_the_answer(client: openai.OpenAI, provider: FakeProvider) -> None:
    thinking = Answer((Reasoning("Let me think."), Text("Four.")))
    provider.then(thinking, thinking)
    message = create(client).choices[0].message
    assert (message.content, message.reasoning_content) == ("Four.", "Let me think.")
    chunks = list(create(client, stream=True))
    reasoning = "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks)
    assert (text(chunks), reasoning) == ("Four.", "Let me think.")


def test_a_refusal_is_a_refusal(client: openai.OpenAI, provider: FakeProvider) -> None:
    provider.then(Answer((Refusal("I cannot."),)))
    message = create(client).choices[0].message
    assert (message.content, message.refusal) == (None, "I cannot.")


def test_an_answer_that_was_cut_by_its_length_says_so(client: openai.OpenAI, provider: FakeProvider) -> None:
    provider.then(Answer((Text("And then"),), finish="length"))
    assert create(client, max_tokens=2).choices[0].finish_reason == "length"
    assert provider.requests[-1].body.get("max_tokens", provider.requests[-1].body.get("max_completion_tokens")) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fault", "kind", "code"),
    [
        (Status(429, "Slow down, please."), openai.RateLimitError, "provider_rate_limited"),
        (Status(401, "Incorrect API key provided."), openai.APIStatusError, "provider_auth"),
        (Status(400, "The maximum context length is 8192 tokens."), openai.BadRequestError, "context_length_exceeded"),
        (Status(500, "The server had an error."), openai.InternalServerError, "provider_error"),
        (says("half an ans", error_after=2), openai.APIError, "provider_error"),
    ],
)  # fmt: skip
def test_a_failure_of_the_provider_is_an_error_of_the_sdk_and_the_next_request_works(
    client: openai.OpenAI, provider: FakeProvider, fault: Any, kind: type[openai.APIError], code: str, *, stream: bool
) -> None:
    provider.then(fault)
    with pytest.raises(kind) as caught:
        list(create(client, extra_body=ONCE, stream=stream))
    assert caught.value.code == code
    assert create(client).choices[0].message.content == HELLO


def test_a_rate_limit_that_passes_is_not_the_clients_business(client: openai.OpenAI, provider: FakeProvider) -> None:
    before = len(provider.requests)
    provider.then(Status(429, "Slow down.", retry_after="0"), Status(503, "Busy.", retry_after="0"))
    assert create(client).choices[0].message.content == HELLO
    assert len(provider.requests) - before == 3


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_cancels_its_run_and_frees_the_provider(
    served: Served, provider: FakeProvider, *, stream: bool
) -> None:
    before, gone = len(provider.requests), provider.disconnected
    provider.then(says("one two three", pace=0.1, stall_after=3))
    with served.openai() as client:
        if stream:
            with create(client, stream=True) as chunks:
                next(iter(chunks))
        else:
            with pytest.raises(openai.APITimeoutError):
                create(client.with_options(timeout=0.4))
    assert len(provider.requests) == before + 1
    assert provider.wait_disconnected(count=gone + 1)
    newest = served.get("/v1/runs?limit=1")["data"][0]
    ended = served.ended(newest["run_id"])
    assert (ended["status"], ended["cancel_reason"]) == ("cancelled", "client_disconnect")


def test_in_a_session_the_run_goes_on_without_the_client(served: Served, provider: FakeProvider) -> None:
    provider.then(says("one two three", pace=0.1))
    with (
        served.openai() as client,
        create(client, stream=True, extra_headers={"X-Session-Id": "goes-on"}) as chunks,
    ):
        next(iter(chunks))
    newest = served.get("/v1/runs?limit=1")["data"][0]
    assert served.ended(newest["run_id"])["status"] == "completed"
    assert served.transcript("goes-on") == [("user", "hi"), ("assistant", "one two three")]


def test_the_models_are_listed_and_each_can_be_asked_for(client: openai.OpenAI, provider: FakeProvider) -> None:
    names = [model.id for model in client.models.list()]
    assert {"default", "fake-model", "custom/fake-model", "custom/fake-model-2"} <= set(names)
    for name, asked in (("custom/fake-model-2", "fake-model-2"), ("default", "fake-model")):
        client.chat.completions.create(model=name, messages=HI)
        assert provider.requests[-1].model == asked
    assert client.models.retrieve("custom/fake-model-2").id == "custom/fake-model-2"


def test_the_sdk_s_own_helper_for_streams_and_for_parsed_answers_work(client: openai.OpenAI, provider: FakeProvider) -> None:
    provider.then(says("one two"))
    with client.chat.completions.stream(model="default", messages=HI) as stream:
        assert stream.get_final_completion().choices[0].message.content == "one two"


def test_a_repeat_with_the_same_key_streams_the_same_answer_without_asking_the_model(
    client: openai.OpenAI, provider: FakeProvider
) -> None:
    provider.then(says("one two three"))
    asked = len(provider.requests)
    key: Any = {"extra_headers": {"Idempotency-Key": "stream-1"}}
    first, second = (list(create(client, stream=True, **key)) for _ in range(2))
    assert (text(first), text(second), first[0].id) == ("one two three", "one two three", second[0].id)
    assert len(provider.requests) == asked + 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_stops_tells_the_client_and_the_session_goes_on_after_it(
    served: Served, provider: FakeProvider, *, stream: bool
) -> None:
    name = f"stops-{stream}"
    asked = len(provider.requests)
    provider.then(says("one two three", pace=0.3))
    failed: list[openai.APIError] = []

    def ask() -> None:
        with served.openai() as client:
            try:
                list(create(client, stream=stream, extra_headers={"X-Session-Id": name}))
            except openai.APIError as error:
                failed.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert provider.wait_requests(asked + 1)
    time.sleep(0.2)
    served.server.stop()
    asking.join(5)
    assert [error.code for error in failed] == ["shutting_down"]
    served.server.start()
    newest = served.get(f"/v1/runs?session_id={name}")["data"][0]
    assert served.ended(newest["run_id"])["status"] == "completed"
    assert served.transcript(name) == [("user", "hi"), ("assistant", HELLO)]
