"""The embedded model: supervised, started again, never left behind; and the real one answers."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from actors.ports import ModelCall
from gateways.clock import SystemClock
from gateways.embedded.model import MODEL, EmbeddedModel, Supervision
from gateways.embedded.weights import missing
from gateways.provider.transport import ProviderTransport

CHILD = Path(__file__).parent.parent / "fakes" / "model_child.py"
QUICK = Supervision(load=2, backoff=0.05, backoff_most=0.2, stable=60, health_every=0.05, health_wait=0.2)
Start = Callable[..., EmbeddedModel]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[EmbeddedModel] = []

    def make(*behaviour: str, supervision: Supervision = QUICK) -> EmbeddedModel:
        model = EmbeddedModel(tmp_path, SystemClock(), [sys.executable, str(CHILD), *behaviour], supervision)
        model.start()
        started.append(model)
        return model

    yield make
    for model in started:
        model.stop()


def until(condition: Callable[[], object], seconds: float = 8) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def test_it_is_loading_and_then_ready_with_an_address(start: Start) -> None:
    model = start("--load", "0.1")
    assert model.state.status == "loading"
    assert model.base_url() is None
    assert until(lambda: model.state.status == "ready")
    assert str(model.base_url()).startswith("http://127.0.0.1:")
    model.stop()
    assert (model.state.status, model.endpoint()) == ("absent", None)


def test_a_child_that_dies_is_told_and_started_again(start: Start) -> None:
    model = start(supervision=Supervision(load=2, backoff=0.3, health_every=5))
    assert until(lambda: model.state.status == "ready")
    first = model.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert until(lambda: model.state.status == "failed")
    assert "SIGKILL" in str(model.state.reason)
    assert model.base_url() is None
    assert until(lambda: model.state.status == "ready")
    assert model.pid != first


def test_a_child_that_does_not_come_up_says_its_last_words(start: Start) -> None:
    model = start("--fail", "no such file: weights.gguf")
    assert until(lambda: model.state.status == "failed")
    assert "code 3: no such file: weights.gguf" in str(model.state.reason)


def test_a_child_that_never_serves_is_ended(start: Start) -> None:
    model = start("--load", "60", supervision=Supervision(load=0.3, backoff=5))
    assert until(lambda: model.pid is not None)
    pid = model.pid
    assert until(lambda: model.state.status == "failed")
    assert "did not serve within" in str(model.state.reason)
    assert pid is not None
    assert not is_alive(pid)


def test_a_child_that_hangs_is_replaced(start: Start) -> None:
    model = start()
    assert until(lambda: model.state.status == "ready")
    hung = model.pid
    assert hung is not None
    os.kill(hung, signal.SIGSTOP)
    assert until(lambda: model.state.status == "ready" and model.pid != hung)
    assert not is_alive(hung)


def test_a_child_that_says_nonsense_fails(start: Start) -> None:
    model = start("--says", "hello")
    assert until(lambda: model.state.status == "failed")
    assert "no address" in str(model.state.reason)


def test_it_is_not_restarted_in_a_hot_loop(start: Start, tmp_path: Path) -> None:
    count = tmp_path / "starts"
    start("--count", str(count), "--fail", "x", supervision=Supervision(load=2, backoff=0.2, backoff_most=10))
    time.sleep(1.2)
    assert 1 <= len(count.read_text()) <= 4


def test_stopping_ends_a_child_that_ignores_the_request(start: Start) -> None:
    model = start("--stubborn")
    assert until(lambda: model.state.status == "ready")
    pid = model.pid
    assert pid is not None
    began = time.monotonic()
    model.stop()
    assert time.monotonic() - began < 2.5
    assert not is_alive(pid)


def test_stopping_while_it_loads_is_quick(start: Start) -> None:
    model = start("--load", "60")
    assert until(lambda: model.pid is not None)
    began = time.monotonic()
    model.stop()
    assert time.monotonic() - began < 2


def test_the_child_never_outlives_us(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, time; from gateways.embedded.model import *; from gateways.clock import SystemClock\n"
        "m = EmbeddedModel(pathlib.Path(sys.argv[1]), SystemClock(), [sys.executable, *sys.argv[2:]]); m.start()\n"
        "while m.state.status != 'ready': time.sleep(0.01)\n"
        "print(m.pid, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(CHILD), "--stubborn"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=CHILD.parents[2]) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    assert until(lambda: not is_alive(pid))


def test_without_its_wheels_it_is_absent_and_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    model = EmbeddedModel(tmp_path, SystemClock())
    model.start()
    assert model.state.status == "absent"
    assert "pip install" in str(model.state.reason)
    model.stop()


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_real_model_answers_a_chat(tmp_path: Path) -> None:
    model = EmbeddedModel(tmp_path, SystemClock())
    model.start()
    with closing(model_transport(model)) as transport:
        try:
            assert until(lambda: model.state.status == "ready", 60), model.state
            question = [{"role": "user", "content": "Say hello."}]
            body = {"model": MODEL, "messages": question, "max_tokens": 12}
            outcome = transport.exchange(ModelCall("embedded", "/chat/completions", body, stream=False)).open()
            assert outcome["status"] == 200
            assert '"role":"assistant"' in outcome["body"].replace(" ", "")
            streaming = transport.exchange(ModelCall("embedded", "/chat/completions", body | {"stream": True}, stream=True))
            assert streaming.open()["stream"] is True
            raw = b""
            while not (batch := streaming.read()).done:
                raw += batch.raw
            assert (b"data: [DONE]" in raw + batch.raw, batch.error) == (True, None)
        finally:
            model.stop()


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
def test_the_real_model_ends_an_answer_that_nobody_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateways.embedded.model._ANSWER", 16)
    model = EmbeddedModel(tmp_path, SystemClock())
    model.start()
    with closing(model_transport(model)) as transport:
        try:
            assert until(lambda: model.state.status == "ready", 60), model.state
            body = {"model": MODEL, "messages": [{"role": "user", "content": "Tell me a very long story."}]}
            outcome = transport.exchange(ModelCall("embedded", "/chat/completions", body, stream=False)).open()
            answer = json.loads(outcome["body"])
            assert (answer["choices"][0]["finish_reason"], answer["usage"]["completion_tokens"]) == ("length", 16)
        finally:
            model.stop()


def model_transport(model: EmbeddedModel) -> ProviderTransport:
    return ProviderTransport(lambda _: model.endpoint(), SystemClock())
