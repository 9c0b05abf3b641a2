"""How diagnostics look: one line an event, with its ids, sizes and states as `name=value`; never contents or credentials."""

import logging
import time

PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
QUIET = ("waitress", "urllib3", "pykka")
"""Libraries whose lines below WARNING would repeat what deedbox says, or show addresses with tokens in them."""


class Line(logging.Formatter):
    """Formats a record as time, level, logger, message, then what was given as `extra`, sorted by name."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03dZ"
    default_time_format = "%Y-%m-%dT%H:%M:%S"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the library's name)
        """Return the line without a traceback."""
        extra = {name: value for name, value in vars(record).items() if name not in PLAIN}
        pairs = "".join(f" {name}={_value(extra[name])}" for name in sorted(extra))
        return super().formatMessage(record) + pairs


def set_up(level: str) -> None:
    """Send all diagnostics of this process to standard error, from `level` on."""
    handler = logging.StreamHandler()
    handler.setFormatter(Line())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _value(value: object) -> str:
    text = str(value)
    return repr(text) if " " in text or "\n" in text or not text else text
