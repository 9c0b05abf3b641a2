"""The messages of a conversation, as the events hold them.

Nothing is copied: a transcript is a list of places (position of an event, index of a message in it), and the message is
read from the event each time.  So a message that is removed from the log is gone from the transcript too.
"""

from eventstore.catalogue import (
    Event,
    HistoryGiven,
    Json,
    ModelCompleted,
    RunAdmitted,
    RunCancelled,
    RunFailed,
    ScriptAdvanced,
    ToolCompleted,
)


def messages_in(event: Event) -> tuple[Json, ...]:
    """Return the canonical messages that an event holds, in order; most hold none.

    Those of `run.admitted` count from the moment when the run starts, all others at once.
    """
    match event:
        case HistoryGiven(messages=messages):
            return messages
        case RunAdmitted(input=messages):
            return messages
        case ScriptAdvanced(acts=acts):
            values = (step.value for step in acts if step.act == "answer" and step.kind == "new_messages")
            return tuple(message for value in values if isinstance(value, list) for message in value)
        case ModelCompleted(message=message):
            return (message,)
        case ToolCompleted():
            return (_tool_result(event),)
        case RunCancelled(partial=partial) | RunFailed(partial=partial) if partial:
            content = [{"type": "text", "text": partial}]
            return ({"role": "assistant", "content": content, "aborted": True},)
        case _:
            return ()


def _tool_result(event: ToolCompleted) -> Json:
    return {
        "role": "tool",
        "call_id": event.call_id,
        "name": event.name,
        "content": event.content,
        "ok": event.outcome == "ok",
        "outcome": event.outcome,
    }
