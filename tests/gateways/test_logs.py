"""Diagnostics: one line an event, with its ids."""

import logging

from gateways.logs import Line


def line(**extra: object) -> str:
    record = logging.makeLogRecord(
        {"name": "actors.shell", "levelname": "INFO", "msg": "parked %s", "args": ("run",), **extra}
    )
    return Line().format(record)


def test_a_line_has_time_level_logger_message_and_ids() -> None:
    found = line(run_id="run_1", after_ms=3)
    assert found.endswith("INFO    actors.shell: parked run after_ms=3 run_id=run_1")
    assert found[10] == "T"
    assert found.split(" ")[0].endswith("Z")


def test_a_value_with_spaces_cannot_forge_another_field_or_line() -> None:
    assert line(reason="a b\nlevel=x").endswith(r"reason='a b\nlevel=x'")
