"""One run's script in this process: where it stands, what waits for it, and which calls are its own."""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from actors.delivery import Delivery
from actors.run_commands import Advance, Command, DriveScript, PerformCall
from eventstore.catalogue import Json, RunAdmitted
from rss_policy.script import Call, Ended, Halt, Raised, Script, Stop

Back = Callable[[Command], None]


@dataclass(slots=True)
class Drive:
    """What the script performer knows of a run; all of it is guarded by `lock`.

    `step`: the last recorded step; `reported`: the last that was sent to be recorded; `ready`: the next outcome may go in.
    `epoch`: raised when the actor is another one; what belongs to an older epoch is void.  `settled`: calls that have an
    outcome.  `foreseen`: the first step, done before the run's start was on record.  `held`: quiet steps that go to the
    record with the next one.  `batches`, `issued`: by request or call, batches so far and UTC microseconds.
    `stopped`: calls, and streams of requests, that the script does not want any more.
    """

    run_id: str
    back: Back
    lock: threading.RLock = field(default_factory=threading.RLock)
    epoch: int = 0
    life: int = -1
    step: int = -1
    reported: int = 0
    ready: bool = False
    busy: bool = False
    closed: bool = False
    tries: int = 0
    script: Script | None = None
    admitted: RunAdmitted | None = None
    ended: Ended | Raised | None = None
    foreseen: "tuple[Halt, Hand] | None" = None
    held: list[Advance] = field(default_factory=list)
    finishing: bool = False
    queue: deque[Delivery] = field(default_factory=deque)
    settled: set[int] = field(default_factory=set)
    calls: dict[int, Call] = field(default_factory=dict)
    performed: set[int] = field(default_factory=set)
    wanted: dict[int, PerformCall] = field(default_factory=dict)
    messages: dict[int, tuple[Json, ...]] = field(default_factory=dict)
    batches: dict[int, int] = field(default_factory=dict)
    issued: dict[int, int] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)

    def is_at(self, epoch: int) -> bool:
        """Return whether work of this epoch still counts."""
        return not self.closed and self.epoch == epoch

    def note(self, effect: DriveScript, back: Back) -> tuple[bool, Script | None]:
        """Take note that a step is on record; return whether what came since is void, and the script to end then."""
        with self.lock:
            known = self.step >= 0
            moved = effect.life != self.life or not self.step < effect.step <= self.reported
            void = known and (moved or self.closed)
            script = self.reset() if void else None
            if not known or void:
                self.reported = effect.step
            self.life, self.step, self.back = effect.life, effect.step, back
            self.ready = effect.step == self.reported
            return void, script

    def reset(self) -> Script | None:
        """Void what was done since the record; return the script that is to be ended."""
        script, self.script = self.script, None
        self.epoch += 1
        self.busy = self.ready = self.finishing = self.closed = False
        self.tries, self.ended, self.foreseen = 0, None, None
        self.held.clear()
        for table in (self.queue, self.settled, self.calls, self.performed, self.wanted, self.batches):
            table.clear()
        self.issued.clear()
        self.stopped.clear()
        return script

    def close(self) -> Script | None:
        """Let nothing of it count any more; return the script that is to be ended."""
        with self.lock:
            self.closed = True
            script, self.script = self.script, None
            return script

    def did(self, halt: Halt) -> None:
        """Take note of the calls that the script started and stopped; under `lock`."""
        self.calls.update({act.number: act for act in halt.acts if isinstance(act, Call)})
        self.stopped.update(act.number for act in halt.acts if isinstance(act, Stop))

    def open_tools(self) -> list[int]:
        """Return the tool calls without an outcome."""
        return [number for number, call in self.calls.items() if call.kind == "call_tool" and number not in self.settled]


@dataclass(slots=True)
class Hand:
    """Answers at once what one step asks, and remembers which messages it handed out."""

    drive: Drive
    now: Callable[[], int]
    new_id: Callable[[], str]
    counts: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)

    def answer(self, kind: str) -> Any:
        """Answer `now`, `random_id` or `new_messages`; on the script's thread."""
        match kind:
            case "now":
                return self.now()
            case "random_id":
                return self.new_id()
            case _:
                return self._messages()

    def _messages(self) -> list[Json]:
        with self.drive.lock:
            fresh = [(order, said) for order, said in sorted(self.drive.messages.items()) if order not in self.taken]
        self.taken.extend(order for order, _ in fresh)
        self.counts.append(len(fresh))
        return [message for _, said in fresh for message in said]
