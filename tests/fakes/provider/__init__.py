"""A scripted model provider on loopback that speaks OpenAI Chat, OpenAI Responses and Anthropic Messages."""

from tests.fakes.provider.anthropic_messages import signature_of
from tests.fakes.provider.request import Received
from tests.fakes.provider.script import (
    Answer,
    Exactly,
    Faults,
    HangUp,
    Reasoning,
    Refusal,
    Silence,
    Status,
    Step,
    Text,
    ToolCall,
    Usage,
    Wire,
    calls,
    says,
)
from tests.fakes.provider.server import FakeProvider, nobody_accepts, nobody_listens

__all__ = [
    "Answer",
    "Exactly",
    "FakeProvider",
    "Faults",
    "HangUp",
    "Reasoning",
    "Received",
    "Refusal",
    "Silence",
    "Status",
    "Step",
    "Text",
    "ToolCall",
    "Usage",
    "Wire",
    "calls",
    "nobody_accepts",
    "nobody_listens",
    "says",
    "signature_of",
]
