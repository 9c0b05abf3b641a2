"""The fake provider speaks as the vendors do: their own clients read it, and it refuses what they would refuse."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anthropic
import openai
import pytest
import requests

from tests.fakes.provider import Answer, FakeProvider, Reasoning, Refusal, Status, Text, ToolCall, Usage, calls, says
from tests.fakes.provider.anthropic_messages import signature_of

ANSWER = Answer((Reasoning("Let me think."), Text("It is sunny in Zürich 😀.")), usage=Usage(20, 9, cached=5, reasoning=3))
WEATHER: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    with FakeProvider(key="sk-test") as provider:
        yield provider


@pytest.fixture
def gpt(fake: FakeProvider) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=fake.url, api_key="sk-test", max_retries=0, timeout=5) as client:
        yield client


@pytest.fixture
def claude(fake: FakeProvider) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=fake.root, api_key="sk-test", max_retries=0, timeout=5) as client:
        yield client


def test_chat_answers_whole(fake: FakeProvider, gpt: openai.OpenAI) -> None:
    fake.then(ANSWER)
    answer = gpt.chat.completions.create(model="m", messages=HELLO)
    assert answer.choices[0].message.content == "It is sunny in Zürich 😀."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 29


def test_chat_streams_text_reasoning_and_usage_when_asked(fake: FakeProvider, gpt: openai.OpenAI) -> None:
    fake.then(ANSWER)
    with gpt.chat.completions.create(
        model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    thoughts = "".join(getattr(chunk.choices[0].delta, "reasoning_content", "") for chunk in chunks if chunk.choices)
    assert (text, thoughts) == ("It is sunny in Zürich 😀.", "Let me think.")
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens == 20


def test_chat_streams_no_usage_when_not_asked(gpt: openai.OpenAI) -> None:
    with gpt.chat.completions.create(model="m", messages=HELLO, stream=True) as stream:
        assert all(chunk.choices and chunk.usage is None for chunk in stream)


def test_chat_streams_two_tool_calls_with_split_arguments(fake: FakeProvider, gpt: openai.OpenAI) -> None:
    fake.then(Answer((ToolCall("get", '{"city":"Paris"}'), ToolCall("get", '{"city":"Rome"}')), piece=3))
    tools: list[Any] = [{"type": "function", "function": {"name": "get", "parameters": WEATHER}}]
    with gpt.chat.completions.stream(model="m", messages=HELLO, tools=tools) as stream:
        answer = stream.get_final_completion()
    found = [call.function.arguments for call in answer.choices[0].message.tool_calls or ()]
    assert found == ['{"city":"Paris"}', '{"city":"Rome"}']
    assert answer.choices[0].finish_reason == "tool_calls"


def test_responses_answer_whole_and_as_stream(fake: FakeProvider, gpt: openai.OpenAI) -> None:
    fake.then(ANSWER, ANSWER, calls("get", {"city": "Paris"}), Answer((Refusal("No."),)))
    assert gpt.responses.create(model="m", input="Hello").output_text == "It is sunny in Zürich 😀."
    with gpt.responses.stream(model="m", input="Hello") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert final.output_text == "It is sunny in Zürich 😀."
    assert "response.reasoning_summary_text.delta" in kinds
    with gpt.responses.stream(model="m", input="Hello") as stream:
        call = stream.get_final_response().output[0]
    assert call.type == "function_call"
    assert call.arguments == '{"city":"Paris"}'
    with gpt.responses.stream(model="m", input="Hello") as stream:
        message = stream.get_final_response().output[0]
    assert message.type == "message"
    assert message.content[0].type == "refusal"


def test_responses_that_reach_the_limit_are_incomplete(fake: FakeProvider, gpt: openai.OpenAI) -> None:
    fake.then(Answer((Text("to be contin"),), finish="length"))
    answer = gpt.responses.create(model="m", input="Hello")
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_messages_answer_whole_and_as_stream(fake: FakeProvider, claude: anthropic.Anthropic) -> None:
    fake.then(ANSWER, ANSWER, calls("get", {"city": "Paris"}))
    whole = claude.messages.create(model="m", max_tokens=100, messages=HELLO)
    with claude.messages.stream(model="m", max_tokens=100, messages=HELLO) as stream:
        streamed = stream.get_final_message()
    assert [block.type for block in whole.content] == [block.type for block in streamed.content] == ["thinking", "text"]
    assert streamed.content[0] == whole.content[0]
    assert (streamed.usage.input_tokens, streamed.usage.output_tokens, streamed.stop_reason) == (15, 9, "end_turn")
    with claude.messages.stream(model="m", max_tokens=100, messages=HELLO) as stream:
        call = stream.get_final_message()
    assert call.stop_reason == "tool_use"
    assert call.content[0].type == "tool_use"
    assert call.content[0].input == {"city": "Paris"}


def test_models_are_listed_to_both_clients(gpt: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    assert [model.id for model in gpt.models.list()] == ["fake-model", "fake-model-2"]
    assert [model.id for model in claude.models.list()] == ["fake-model", "fake-model-2"]


def test_errors_have_the_vendors_shape(fake: FakeProvider, gpt: openai.OpenAI, claude: anthropic.Anthropic) -> None:
    fake.then(Status(429, "slow down", retry_after="7"), Status(529, "Overloaded"))
    with pytest.raises(openai.RateLimitError, match="slow down") as limited:
        gpt.chat.completions.create(model="m", messages=HELLO)
    assert limited.value.response.headers["retry-after"] == "7"
    with pytest.raises(anthropic.InternalServerError, match="Overloaded"):
        claude.messages.create(model="m", max_tokens=9, messages=HELLO)


def test_an_error_inside_a_stream_reaches_both_clients(
    fake: FakeProvider, gpt: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    fake.always(says("one two three", error_after=3))
    with (
        pytest.raises(openai.APIError, match="overloaded"),
        gpt.chat.completions.create(model="m", messages=HELLO, stream=True) as stream,
    ):
        list(stream)
    with (
        pytest.raises(anthropic.APIStatusError, match="overloaded"),
        claude.messages.create(model="m", max_tokens=9, messages=HELLO, stream=True) as events,
    ):
        list(events)


def test_a_wrong_key_is_refused(fake: FakeProvider) -> None:
    with (
        openai.OpenAI(base_url=fake.url, api_key="sk-wrong", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.chat.completions.create(model="m", messages=HELLO)


USER = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "get", "arguments": "{}"}}
ASKS = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
CHAT_FAULTS = [
    ({"messages": []}, "empty array"),
    ({"messages": [USER | {"role": "robot"}]}, "Supported values"),
    ({"messages": [USER, ASKS]}, "must be followed by tool messages"),
    ({"messages": [USER, ASKS, USER]}, "must be followed by tool messages"),
    ({"messages": [USER, RESULT]}, "preceeding message"),
    ({"messages": [USER, {"role": "assistant", "content": None}, USER]}, "got null"),
    ({"messages": [USER, {"role": "assistant", "content": "x", "tool_calls": []}]}, "tool_calls"),
    ({"messages": [USER], "stream_options": {"include_usage": True}}, "stream_options"),
    ({"messages": [USER], "tools": []}, "tools"),
    ({"messages": [USER], "tool_choice": "required"}, "tool_choice"),
    ({"messages": [USER], "run_id": "r"}, "Unrecognized request argument"),
    ({"messages": [USER], "max_tokens": 0}, "max_tokens"),
    (
        {"messages": [USER, ASKS | {"tool_calls": [CALL | {"function": {"name": "get", "arguments": "{oops"}}]}, RESULT]},
        "arguments",
    ),
]
RESPONSES_CALL = {"type": "function_call", "call_id": "c1", "name": "get", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "ok"}
RESPONSES_FAULTS = [
    ({"input": []}, "input"),
    ({"input": [USER, RESPONSES_CALL]}, "No tool output found"),
    ({"input": [USER, OUTPUT]}, "No tool call found"),
    ({"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]}, "Supported values"),
    ({"input": [USER, {"type": "reasoning", "id": "rs_1", "summary": []}]}, "required following item"),
    ({"input": "x", "messages": []}, "Unknown parameter"),
    ({"input": "x", "max_output_tokens": 1}, "max_output_tokens"),
]
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "get", "input": {}}]}
DONE = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": signature_of("hm")}
MESSAGES_FAULTS = [
    ({"messages": [USER], "max_tokens": None}, "max_tokens: Field required"),
    ({"messages": [{"role": "system", "content": "x"}]}, "Unexpected role"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "first message"),
    ({"messages": [USER, USER]}, "roles must alternate"),
    ({"messages": [USER, USE]}, "without `tool_result`"),
    ({"messages": [USER, USE, USER]}, "without `tool_result`"),
    ({"messages": [DONE]}, "unexpected `tool_use_id`"),
    ({"messages": [USER | {"content": ""}]}, "non-empty content"),
    ({"messages": [USER | {"content": "  "}]}, "non-whitespace"),
    ({"messages": [USER, {"role": "assistant", "content": "So "}]}, "trailing whitespace"),
    ({"messages": [USER, {"role": "assistant", "content": [THOUGHT | {"thinking": "ha"}]}, USER]}, "Invalid `signature`"),
    (
        {"messages": [USER, USE, DONE], "thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048},
        "Expected `thinking`",
    ),
    ({"messages": [USER], "thinking": {"type": "enabled", "budget_tokens": 4096}, "max_tokens": 2048}, "budget_tokens"),
    ({"messages": [USER], "tools": [{"name": "get"}]}, "input_schema"),
    ({"messages": [USER], "seed": 1}, "Extra inputs"),
]


@pytest.mark.parametrize(
    ("path", "asked", "said"),
    [("/chat/completions", *fault) for fault in CHAT_FAULTS]
    + [("/responses", *fault) for fault in RESPONSES_FAULTS]
    + [("/messages", *fault) for fault in MESSAGES_FAULTS],
)
def test_what_the_vendors_refuse_is_refused(fake: FakeProvider, path: str, asked: dict[str, Any], said: str) -> None:
    body = {"model": "m"} | ({"max_tokens": 99} if path == "/messages" else {}) | asked
    headers = {"authorization": "Bearer sk-test", "anthropic-version": "2023-06-01"}
    answer = requests.post(fake.url + path, json=body, headers=headers, timeout=5)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/chat/completions", {"messages": [USER, ASKS, RESULT, {"role": "assistant", "content": "done"}, USER]}),
        ("/responses", {"input": [USER, RESPONSES_CALL, OUTPUT]}),
        ("/messages", {"messages": [USER, USE, DONE], "max_tokens": 99}),
        ("/messages", {"messages": [USER, {"role": "assistant", "content": [THOUGHT]}, USER], "max_tokens": 99}),
    ],
)
def test_good_histories_are_taken(fake: FakeProvider, path: str, asked: dict[str, Any]) -> None:
    headers = {"x-api-key": "sk-test", "anthropic-version": "2023-06-01"}
    assert requests.post(fake.url + path, json={"model": "m"} | asked, headers=headers, timeout=5).status_code == 200


def test_it_runs_as_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "tests.fakes.provider", "--port", "0", "--text", "from afar"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            with closing(
                requests.post(f"{url}/chat/completions", json={"model": "m", "messages": HELLO}, timeout=5)
            ) as answer:
                assert answer.json()["choices"][0]["message"]["content"] == "from afar"
        finally:
            process.kill()
