"""Every setting there is, with its type and its default: what `docs/configuration.md` and `deedbox config` show.

A value comes from the default, then `deedbox.toml`, then `DEEDBOX_*`, then a flag; `config_load.py` puts them together and
`config_checks.py` says what cannot work.  Secrets are never settings: a setting names the variable that holds one.
"""

from typing import Annotated, Any, Literal

import msgspec

Adapter = Literal["openai_chat", "openai_responses", "anthropic_messages"]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections."""


class ServerSettings(Section, frozen=True):
    """The process: where it listens, where its log is, how much it takes in."""

    address: str = "127.0.0.1:8787"
    data_dir: str = "./var"
    recovery: Literal["resume", "fail"] = "resume"
    allowed_hosts: tuple[str, ...] = ()
    threads: Positive = 72
    connections: Positive = 2000
    streams: Positive = 1500
    max_body_bytes: Positive = 8_388_608
    requests_per_minute: Annotated[int, msgspec.Meta(ge=0)] = 0
    heartbeat_s: Seconds = 10.0
    ready_timeout_s: Seconds = 120.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class LimitSettings(Section, frozen=True):
    """What one run, one session and the whole server may use."""

    active_runs: Positive = 64
    queued_runs: Positive = 1000
    session_queue: Positive = 100
    run_deadline_s: Seconds = 3600.0
    max_turns: Positive = 50
    max_events: Positive = 20_000
    max_input_bytes: Positive = 1_048_576
    max_output_tokens: Positive | None = None
    policy_workers: Positive = 64


class ModelSettings(Section, frozen=True):
    """The default model; without a provider the server takes what the machine has (see `deedbox config --chosen`)."""

    provider: str | None = None
    model: str | None = None


class ProviderSettings(Section, frozen=True):
    """One provider; what is left out comes from the bundled provider profile of the same name."""

    adapter: Adapter | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    auth: Literal["bearer", "x-api-key", "none"] | None = None
    headers: dict[str, str] = {}
    models: tuple[str, ...] | dict[str, Any] | None = None
    default_model: str | None = None
    capabilities: dict[str, Any] = {}
    prices: dict[str, Any] = {}
    reasoning_replay: Literal["always", "tool_turns", "never"] | None = None
    allow_private: bool = False
    ca_file: str | None = None
    proxy: str | None = None
    connect_timeout_s: Seconds | None = None
    first_byte_timeout_s: Seconds | None = None
    idle_timeout_s: Seconds | None = None
    total_timeout_s: Seconds | None = None


class ProfileSettings(Section, frozen=True):
    """A named set of policy, model and limits; the profile `default` always exists."""

    policy: str | None = None
    provider: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    busy: Literal["queue", "steer"] = "queue"
    limits: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}


class WorkspaceSettings(Section, frozen=True):
    """Folders that workspace tools may touch."""

    roots: tuple[str, ...] = (".",)


class ApprovalSettings(Section, frozen=True):
    """Who is asked before a tool does something."""

    mode: Literal["auto", "manual", "never", "all"] = "auto"


class TelegramSettings(Section, frozen=True):
    """The Telegram bot; nobody may write to it unless listed here by numeric id."""

    token_env: str = "TELEGRAM_BOT_TOKEN"  # noqa: S105 (the name of a variable, not a secret)
    api_base: str = "https://api.telegram.org"
    allowed_users: tuple[int, ...] = ()
    allowed_chats: tuple[int, ...] = ()


class Config(Section, frozen=True):
    """The whole configuration."""

    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    model: ModelSettings = ModelSettings()
    providers: dict[str, ProviderSettings] = {}
    profiles: dict[str, ProfileSettings] = {}
    workspace: WorkspaceSettings = WorkspaceSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    telegram: TelegramSettings = TelegramSettings()
