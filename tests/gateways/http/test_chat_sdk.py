"""The OpenAI route as the `openai` SDK sees it, over a real server."""

import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from eventstore.catalogue import ModelDelta, ModelDiscarded, ModelStarted, Problem, RunFailed
from tests.fakes.service import said
from tests.gateways.http.conftest import Served

HELLO: Any = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
WEATHER: Any = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"type": "tool_call", "id": "call_1", "name": "weather", "arguments": {"city": "Oslo"}}


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", max_retries=0, timeout=20) as client:
        yield client


def play(served: Served, *pieces: str) -> None:
    served.service.on_admit = lambda run_id, _: threading.Thread(
        target=served.service.answer, args=(run_id, *pieces), daemon=True
    ).start()


def fail(served: Served, problem: Problem, *pieces: str) -> None:
    def act(run_id: str, _: Any) -> None:
        served.service.start(run_id)
        for piece in pieces:
            served.service.emit(run_id, ModelDelta, attempt=1, text=piece)
        served.service.emit(run_id, RunFailed, error=problem)

    served.service.on_admit = act


def test_a_plain_completion_has_text_reason_usage_and_the_ids_of_session_and_run(
    served: Served, client: openai.OpenAI
) -> None:
    play(served, "Hello", " there")
    raw = client.chat.completions.with_raw_response.create(model="default", messages=HELLO)
    answer = raw.parse()
    assert answer.choices[0].message.content == "Hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (7, 10)
    assert raw.headers["x-run-id"] == answer.id.removeprefix("chatcmpl-")
    assert raw.headers["x-session-id"].startswith("ses_")


def test_a_stream_gives_the_role_then_the_deltas_then_the_reason_and_no_usage_unasked(
    served: Served, client: openai.OpenAI
) -> None:
    play(served, "Hel", "lo")
    chunks = list(client.chat.completions.create(model="default", messages=HELLO, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].delta.content for chunk in chunks[1:-1]] == ["Hel", "lo"]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(chunk.usage is None for chunk in chunks)
    assert len({chunk.id for chunk in chunks}) == 1


def test_the_usage_chunk_comes_last_and_has_no_choices_where_it_was_asked_for(served: Served, client: openai.OpenAI) -> None:
    play(served, "Hello")
    options: Any = {"include_usage": True}
    chunks = list(client.chat.completions.create(model="default", messages=HELLO, stream=True, stream_options=options))
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 10
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_deltas_arrive_while_the_run_goes_on(served: Served, client: openai.OpenAI) -> None:
    admitted = threading.Event()
    ids: list[str] = []

    def act(run_id: str, _: Any) -> None:
        served.service.start(run_id)
        served.service.emit(run_id, ModelDelta, attempt=1, text="first")
        ids.append(run_id)
        admitted.set()

    served.service.on_admit = act
    with client.chat.completions.create(model="default", messages=HELLO, stream=True) as stream:
        chunks = iter(stream)
        next(chunks)
        assert next(chunks).choices[0].delta.content == "first"
        assert admitted.wait(5)
        served.service.finish(ids[0], said("first, last"))
        assert next(chunks).choices[0].delta.content == ", last"
        assert next(chunks).choices[0].finish_reason == "stop"


def test_two_turns_of_a_named_session_reach_the_same_session_and_send_only_what_is_new(
    served: Served, client: openai.OpenAI
) -> None:
    play(served, "One")
    headers = {"X-Session-Id": "my-session"}
    first = client.chat.completions.create(model="default", messages=HELLO, extra_headers=headers)
    longer = [
        *HELLO,
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "more"},
    ]
    client.chat.completions.create(model="default", messages=longer, metadata={"session_id": "my-session", "k": "v"})
    one, two = served.service.inbounds.values()
    assert (one.session_id, two.session_id) == ("my-session", "my-session")
    assert [part["text"] for message in two.input for part in message["content"]] == ["more"]
    assert (two.history, two.metadata, two.ephemeral) == ((), {"k": "v"}, False)


def test_a_call_of_the_clients_own_tool_comes_as_deltas_with_id_name_and_arguments(
    served: Served, client: openai.OpenAI
) -> None:
    def act(run_id: str, _: Any) -> None:
        served.service.start(run_id)
        for piece in (
            {"index": 0, "id": "call_1", "name": "weather", "arguments": ""},
            {"index": 0, "id": None, "name": None, "arguments": '{"city": '},
            {"index": 0, "id": None, "name": None, "arguments": '"Oslo"}'},
        ):
            served.service.emit(run_id, ModelDelta, attempt=1, tool_calls=(piece,))
        served.service.finish(run_id, said("", CALL), "tool_calls")

    served.service.on_admit = act
    chunks = list(client.chat.completions.create(model="default", messages=HELLO, tools=WEATHER, stream=True))
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert (calls[0].id, calls[0].type) == ("call_1", "function")
    assert "".join(call.function.arguments or "" for call in calls if call.function) == '{"city": "Oslo"}'
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_call_of_the_clients_own_tool_is_in_a_plain_completion(served: Served, client: openai.OpenAI) -> None:
    def act(run_id: str, _: Any) -> None:
        served.service.start(run_id)
        served.service.finish(run_id, said("", CALL), "tool_calls")

    served.service.on_admit = act
    answer = client.chat.completions.create(model="default", messages=HELLO, tools=WEATHER)
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "function"
    assert (calls[0].id, calls[0].function.arguments) == ("call_1", '{"city": "Oslo"}')
    assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_any_text_is_an_http_error_of_the_right_kind(
    served: Served, client: openai.OpenAI, *, stream: bool
) -> None:
    fail(served, Problem(code="rate_limit_exceeded", message="slow down", kind="rate"))
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model="default", messages=HELLO, stream=stream)
    assert caught.value.code == "provider_rate_limited"
    assert "slow down" in caught.value.message


def test_a_full_context_has_openais_own_code(served: Served, client: openai.OpenAI) -> None:
    fail(served, Problem(code="context_length_exceeded", message="too long", kind="overflow"))
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="default", messages=HELLO)
    assert caught.value.code == "context_length_exceeded"


def test_a_failure_after_some_text_ends_the_stream_with_an_error_and_never_as_a_short_answer(
    served: Served, client: openai.OpenAI
) -> None:
    fail(served, Problem(code="stream_cut", message="the provider hung up", kind="network"), "Hel")
    with pytest.raises(openai.APIError, match="hung up") as caught:
        list(client.chat.completions.create(model="default", messages=HELLO, stream=True))
    assert caught.value.code == "provider_error"


def retried(served: Served, *second: str) -> None:
    def act(run_id: str, _: Any) -> None:
        service = served.service
        service.start(run_id)
        service.emit(run_id, ModelDelta, attempt=1, text="Hello wor")
        service.emit(run_id, ModelDiscarded, turn=1, attempt=1, reason="cut")
        service.emit(run_id, ModelStarted, turn=1, attempt=2)
        for piece in second:
            service.emit(run_id, ModelDelta, attempt=2, text=piece)
        service.finish(run_id, said("".join(second)))

    served.service.on_admit = act


def test_a_retried_answer_that_says_the_same_again_goes_on_where_the_client_is(
    served: Served, client: openai.OpenAI
) -> None:
    retried(served, "Hel", "lo world", "!")
    chunks = list(client.chat.completions.create(model="default", messages=HELLO, stream=True))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello world!"


def test_a_retried_answer_that_says_something_else_is_an_error_and_never_a_mixture(
    served: Served, client: openai.OpenAI
) -> None:
    retried(served, "Good", " day")
    stream = iter(client.chat.completions.create(model="default", messages=HELLO, stream=True))
    seen = [next(stream).choices[0].delta.content or "" for _ in range(2)]
    with pytest.raises(openai.APIError) as caught:
        next(stream)
    assert "".join(seen) == "Hello wor"
    assert caught.value.code == "attempt_discarded"


def test_the_models_can_be_listed_and_read_also_with_a_slash_in_the_name(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["default", "vendor/small"]
    assert client.models.retrieve("vendor/small").owned_by == "vendor"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")


def test_a_field_that_is_not_supported_is_refused_by_its_name(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="default", messages=HELLO, n=2)
    assert (caught.value.param, caught.value.code) == ("n", "unsupported_field")
