"""No known secret and nothing that looks like one survives; JSON stays JSON; twice is once."""

import base64
import json
import time
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore.catalogue import ModelCompleted, ModelDelta, NoteTaken, RunCancelled, ScriptAdvanced, Step
from eventstore.errors import Unwritten
from eventstore.intake import Intake, restored
from eventstore.log import Append, StreamPart
from eventstore.redaction import Redactor, clean, marker

# No brackets: a secret that holds a piece of the marker could appear by our own doing.
LETTERS = st.characters(exclude_characters="[]", exclude_categories=["Cs"]) | st.sampled_from('n\\"/u0')
SECRETS = st.text(LETTERS, min_size=8, max_size=12)
KNOWN = st.lists(SECRETS.filter(lambda one: one not in "[redacted:"), min_size=1, max_size=3)


def texts(secrets: list[str]) -> st.SearchStrategy[str]:
    pieces = st.text(max_size=5) | st.sampled_from(secrets) | st.sampled_from(["\n", "\\", '"', "\\n", "u0041"])
    return st.lists(pieces, max_size=5).map("".join)


def strings_in(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for item in value.items() for one in item for text in strings_in(one)]
        case list():
            return [text for item in value for text in strings_in(item)]
        case _:
            return []


@given(st.data())
def test_no_known_secret_survives_in_a_text(data: st.DataObject) -> None:
    secrets = data.draw(KNOWN)
    redactor = Redactor(secrets)
    once = redactor.text(data.draw(texts(secrets)))
    assert [secret for secret in secrets if secret in once] == []
    assert redactor.text(once) == once


@given(st.data())
def test_no_known_secret_survives_in_json_and_json_stays_json(data: st.DataObject) -> None:
    secrets = data.draw(KNOWN)
    inner = texts(secrets)
    value = data.draw(st.recursive(inner, lambda one: st.lists(one) | st.dictionaries(inner, one), max_leaves=5))
    redactor = Redactor(secrets)
    for ascii_only in (True, False):
        raw = redactor.raw(json.dumps(value, ensure_ascii=ascii_only).encode())
        found = strings_in(json.loads(raw))
        assert [secret for secret in secrets for text in found if secret in text] == []
        assert redactor.raw(raw) == raw
    assert [secret for secret in secrets for text in strings_in(redactor.json(value)) if secret in text] == []


@given(st.binary())
def test_bytes_that_are_no_text_pass_unchanged(raw: bytes) -> None:
    assert Redactor(["a secret that is not there"]).raw(raw) == raw


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghij0123456789",
        "sk-ant-api03-abcdefghij0123456789_-x",
        "ghp_abcdefghij0123456789abcdefghij012345",
        "github_pat_abcdefghij0123456789_abc",
        "xoxb-1234567890-abcdefghij",
        "AKIAIOSFODNN7EXAMPLE",
        "123456789:AAabcdefghij0123456789abcdefghij012",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/IBAAK=\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIEow+/IBAAK=\n",
    ],
)
def test_what_looks_like_a_secret_is_redacted(secret: str) -> None:
    redactor = Redactor()
    text = f'before {secret} "after"'
    assert redactor.text(text).startswith("before [redacted:")
    assert redactor.text(text).endswith('"after"')
    assert json.loads(redactor.raw(json.dumps({"a": text}).encode()))["a"].endswith('"after"')
    assert secret.strip() not in json.dumps(redactor.json({"key": [text], text: 1}))
    assert redactor.text(redactor.text(text)) == redactor.text(text)


def test_a_bearer_token_is_redacted_and_the_word_stays() -> None:
    text = Redactor().text("Authorization: Bearer abcdefghij0123456789")
    assert text == f"Authorization: Bearer {marker('abcdefghij0123456789')}"


@pytest.mark.parametrize("text", ["task-0123456789abcdef", "12:AA", "Bearer of news", "risk-free-0123456789abcdef", "eyJ"])
def test_ordinary_text_stays(text: str) -> None:
    assert Redactor(["short"]).text(text + " short") == text + " short"


def spelled(secret: str, slashes: str = "\\") -> str:
    return "".join(f"{slashes}u{ord(letter):04x}" for letter in secret)


@pytest.mark.parametrize("secret", ["my own secret_value+/Z", "ghp_abcdefghij0123456789abcdefghij012345"])
@pytest.mark.parametrize("slashes", ["\\", "\\\\", "\\\\\\\\"])
@pytest.mark.parametrize("many", [1, 3, 99])
def test_letters_that_are_written_as_escapes_hide_no_secret(secret: str, slashes: str, many: int) -> None:
    redactor = Redactor(["my own secret_value+/Z"])
    text = f'{{"a": "x {spelled(secret[:many], slashes)}{secret[many:]} \\u00e9"}}'
    assert redactor.text(text) == f'{{"a": "x {marker(secret)} \\u00e9"}}'
    assert redactor.raw(text.encode()) == redactor.text(text).encode()
    assert Intake(redactor).ready(NoteTaken(kind="a", data={text: [text]})).data.count(b"[redacted:") == 2


def test_escapes_that_hide_nothing_stay_as_they_are() -> None:
    text = '{"a": "\\u0041 \\u0022 \\u005c"}'
    assert (Redactor().text(text), Redactor().raw(text.encode())) == (text, text.encode())


@pytest.mark.parametrize("before", ["", "u", "us", "use"])
def test_a_known_secret_is_found_in_base64_and_in_urls(before: str) -> None:
    redactor = Redactor(["my own secret?value~>>"])
    for encoded in (base64.b64encode, base64.urlsafe_b64encode):
        text = encoded(f"{before}:my own secret?value~>>:x".encode()).decode()
        assert "[redacted:" in redactor.text(f"Basic {text}")
        assert b"secret" not in base64.urlsafe_b64decode(redactor.text(text).split("[")[0] + "==")
    assert redactor.text(f"?key={quote('my own secret?value~>>')}&x") == f"?key={marker('my own secret?value~>>')}&x"


@pytest.mark.parametrize(
    "piece",
    [
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY----- -----END ",
        "-----BEGIN A PRIVATE KEY-----x ",
        "-----BEGIN PRIVATE KEY PRIVATE KEY",
        "eyJ-",
        "eyJaaaaaaaa.eyJaaaaaaaa-",
        "sk-aaaaaaaaaaaaaaaa\\n",
        "\\u0073k-",
        "xoxb-a",
    ],
)
def test_no_text_takes_long_to_search(piece: str) -> None:
    text = (piece * (300_000 // len(piece) + 1))[:300_000]
    began = time.monotonic()
    Redactor().text(text)
    Redactor().raw(text.encode())
    assert time.monotonic() - began < 5, "a minute, where each place looks to the end"


def test_a_known_secret_is_told_apart_by_its_marker() -> None:
    redactor = Redactor(["secret-number-one", "secret-number-two"])
    assert redactor.text("secret-number-one") != redactor.text("secret-number-two")
    assert redactor.text("secret-number-one") == marker("secret-number-one")


def test_an_escape_is_never_cut_in_half() -> None:
    assert json.loads(Redactor(["nnnnnnnn"]).raw(b'"\\nnnnnnnnnn"')) == f"{marker('nnnnnnnn')}nn"
    assert json.loads(Redactor(["abcdefg\\"]).raw(b'"abcdefg\\""')) == marker("abcdefg\\")


@given(st.text(st.characters() | st.sampled_from("\ud835\udfd8\x00😀")))
def test_clean_text_can_always_be_written(text: str) -> None:
    clean(text).encode()
    assert clean(clean(text)) == clean(text)
    assert clean(text).count("\0") == text.count("\0")


def test_surrogates_are_joined_or_replaced() -> None:
    assert clean("a\ud835b") == "a\ufffdb"
    assert clean("\ud835\udfd8") == "\U0001d7d8"
    assert clean("\udfd8\ud835") == "\ufffd\ufffd"


def test_the_gate_redacts_and_cleans_every_text_but_words_of_the_catalogue() -> None:
    intake = Intake(Redactor(["cancelled", "answered 42 times", "abcdefgh"]))
    acts = (Step(act="answer", kind="answered 42 times", value={"abcdefgh": ["x\ud835"]}),)
    ready = intake.ready(ScriptAdvanced(step=1, acts=acts))
    step = restored(ready.tag, ready.schema, ready.data)
    assert step == ready.event
    assert isinstance(step, ScriptAdvanced)
    assert (step.acts[0].act, step.acts[0].kind) == ("answer", marker("answered 42 times"))
    assert step.acts[0].value == {marker("abcdefgh"): ["x\ufffd"]}


def test_nul_and_four_byte_characters_pass_the_gate() -> None:
    event = ModelDelta(seq=1, attempt=1, text="a\0b 😀 \U0010ffff")
    ready = Intake(Redactor()).ready(event)
    assert restored(ready.tag, ready.schema, ready.data) == event


def test_an_event_without_fields_that_differ_from_the_default_passes_the_gate() -> None:
    for event in (NoteTaken(kind=""), RunCancelled(seq=0, reason="")):
        ready = Intake(Redactor()).ready(event)
        assert restored(ready.tag, ready.schema, ready.data) == event


@pytest.mark.parametrize("value", [object(), 1j])
def test_what_is_not_json_is_refused_before_it_is_written(value: Any) -> None:
    event = ModelCompleted(seq=1, turn=1, attempt=1, message={"a": value})
    with pytest.raises(Unwritten, match="cannot be encoded"):
        Intake(Redactor()).prepare(Append((StreamPart("run-1", 0, (event,)),), 0, "a"))
