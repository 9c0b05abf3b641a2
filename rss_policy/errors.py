"""What can be wrong with a policy, its script or its run.

* PolicyError          the script or its bundle is at fault
  - BundleRefused      the bundle breaks a rule of the dialect or its manifest is wrong
  - TypesRefused       the bundle does not type-check against the host's prelude
  - ScriptRaised       the script raised, or returned what it may not
  - LimitReached       a limit of the engine ended the script; names the limit and its setting
* ProfileRefused       a provider profile, or a setting laid over one, does not fit
* RecordingsRefused    a folder of recorded answers holds none, or a line is no recording
* EngineFailed         the engine, not the script, failed: take the run up by replay
  - WorkerLost         the worker process died
  - EngineBusy         no worker came free in time
* Diverged             a replay did something else than the record says
  - OutcomeMissing     a replay asked for an outcome that the record does not hold
"""

from typing import ClassVar


class ScriptError(Exception):
    """Root of everything the policy engine raises; `code` is stable and documented."""

    code: ClassVar[str] = "policy_error"


class PolicyError(ScriptError):
    """The script or its bundle is at fault; `place` is `module:line` where one is known."""

    def __init__(self, message: str, place: str | None = None) -> None:
        super().__init__(message)
        self.place = place


class BundleRefused(PolicyError):
    """The bundle breaks a rule of the dialect, or its manifest is wrong."""

    code = "policy_refused"


class TypesRefused(PolicyError):
    """The bundle does not type-check."""

    code = "policy_type_error"


class ScriptRaised(PolicyError):
    """The script raised, or returned what it may not."""

    code = "policy_raised"


class LimitReached(PolicyError):
    """A limit of the engine ended the script."""

    code = "policy_limit"

    def __init__(self, message: str, limit: str, place: str | None = None) -> None:
        super().__init__(message, place)
        self.limit = limit


class ProfileRefused(ScriptError):
    """A provider profile, or a setting that is laid over one, does not fit."""

    code = "provider_profile_invalid"


class RecordingsRefused(ScriptError):
    """A folder of recorded answers holds none, or a line of a file is no recording."""

    code = "recordings_invalid"


class EngineFailed(ScriptError):
    """The engine failed; the log is whole and the run can be taken up by replay."""

    code = "engine_failed"


class WorkerLost(EngineFailed):
    """The worker process died."""

    code = "engine_worker_lost"


class EngineBusy(EngineFailed):
    """No worker came free in time."""

    code = "engine_busy"


class Diverged(ScriptError):
    """A replay did something else than the record says."""

    code = "replay_diverged"

    def __init__(self, step: int, recorded: object, now: object, place: str | None = None) -> None:
        super().__init__(f"step {step}: recorded {recorded!r}, now {now!r} at {place or 'the end'}")
        self.step, self.recorded, self.now, self.place = step, recorded, now, place


class OutcomeMissing(Diverged):
    """A replay asked for an outcome that the record does not hold."""

    code = "replay_outcome_missing"
