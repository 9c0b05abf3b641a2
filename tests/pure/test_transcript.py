from typing import Any

import pytest

from eventstore.catalogue import (
    Event,
    HistoryGiven,
    ModelCompleted,
    ModelDelta,
    Problem,
    RunAdmitted,
    RunCancelled,
    RunCompleted,
    RunFailed,
    ScriptAdvanced,
    Step,
    ToolCompleted,
)
from eventstore.transcript import messages_in

HELLO: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
HI: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}
PARTIAL: dict[str, Any] = {"role": "assistant", "content": [{"type": "text", "text": "h"}], "aborted": True}
ERROR = Problem(code="x", message="x")


@pytest.mark.parametrize(
    ("event", "messages"),
    [
        (HistoryGiven(messages=(HELLO, HI)), (HELLO, HI)),
        (RunAdmitted(session_id="s", owner="o", message_id="m", input=(HELLO,)), (HELLO,)),
        (ModelCompleted(seq=1, turn=1, attempt=1, message=HI), (HI,)),
        (RunCancelled(seq=1, reason="user", partial="h"), (PARTIAL,)),
        (RunFailed(seq=1, error=ERROR, partial="h"), (PARTIAL,)),
        (RunCancelled(seq=1, reason="user"), ()),
        (RunFailed(seq=1, error=ERROR), ()),
        (RunCompleted(seq=1, output=HI), ()),
        (ModelDelta(seq=1, attempt=1, text="hi"), ()),
    ],
)
def test_an_event_brings_its_messages(event: Event, messages: tuple[Any, ...]) -> None:
    assert messages_in(event) == messages


@pytest.mark.parametrize("outcome", ["ok", "failed", "denied", "cancelled", "unknown"])
def test_a_tool_s_outcome_is_a_message_whatever_it_was(outcome: Any) -> None:
    event = ToolCompleted(seq=1, call=2, call_id="c", name="ls", outcome=outcome, content="a\nb")
    assert messages_in(event) == (
        {"role": "tool", "call_id": "c", "name": "ls", "content": "a\nb", "ok": outcome == "ok", "outcome": outcome},
    )


def test_messages_that_steered_the_script_count_where_it_met_them() -> None:
    acts = (
        Step(act="answer", kind="now", value=[HI]),
        Step(act="answer", kind="new_messages", value=[HELLO]),
        Step(act="emit"),
        Step(act="answer", kind="new_messages", value=[]),
        Step(act="answer", kind="new_messages", value=[HELLO, HELLO]),
    )
    assert messages_in(ScriptAdvanced(step=1, acts=acts)) == (HELLO, HELLO, HELLO)
    assert messages_in(ScriptAdvanced(step=1)) == ()
