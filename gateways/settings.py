"""From the configuration's sections to the settings that the parts of the server take."""

from actors.settings import Settings
from gateways.config import Config
from gateways.config_checks import address
from gateways.http.ports import HttpSettings


def http_settings(config: Config) -> HttpSettings:
    """Return what the HTTP gateway takes.

    Raises:
        ConfigInvalid: the address is none.
    """
    server = config.server
    return HttpSettings(
        address=address(server.address, "server.address"),
        allowed_hosts=server.allowed_hosts,
        threads=server.threads,
        connections=server.connections,
        streams=server.streams,
        streams_per_principal=server.streams,
        max_body_bytes=server.max_body_bytes,
        requests_per_minute_per_principal=server.requests_per_minute,
        heartbeat_seconds=server.heartbeat_s,
    )


def actor_settings(config: Config) -> Settings:
    """Return what sessions and runs may use."""
    limits = config.limits
    per_run = {
        "deadline_ms": int(limits.run_deadline_s * 1000),
        "max_turns": limits.max_turns,
        "max_events": limits.max_events,
    }
    if limits.max_output_tokens is not None:
        per_run["max_output_tokens"] = limits.max_output_tokens
    return Settings(
        recovery=config.server.recovery,
        active_runs=limits.active_runs,
        queued_runs=limits.queued_runs,
        session_queue=limits.session_queue,
        max_input_bytes=limits.max_input_bytes,
        limits=per_run,
    )
