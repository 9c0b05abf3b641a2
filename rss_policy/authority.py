"""What a manifest lets its script have: fewer tools, certain providers, a context of bounded size.  Pure."""

from typing import Any

from rss_policy.errors import BundleRefused, LimitReached
from rss_policy.manifest import MANIFEST_PATH, Limits, Manifest
from rss_policy.wire import Unfit, to_script


def context_text(context: dict[str, Any], manifest: Manifest, limits: Limits) -> str:
    """Return the context as the script gets it: JSON text, with the schemas of those tools only that the manifest allows.

    Raises:
        BundleRefused: the manifest does not allow the run's provider.
        LimitReached: the context is too big or too deep.
    """
    _refuse_provider(context, manifest)
    try:
        text = to_script(_with_allowed_tools(context, manifest))
    except Unfit as fault:
        raise LimitReached(f"the context cannot cross: {fault} (setting limits.context_bytes)", "context_bytes") from None
    size = len(text.encode())
    if size > limits.context_bytes:
        message = f"the context has {size} bytes, {limits.context_bytes} are allowed (setting limits.context_bytes)"
        raise LimitReached(message, "context_bytes")
    return text


def _refuse_provider(context: dict[str, Any], manifest: Manifest) -> None:
    provider = context.get("provider")
    name = provider.get("name") if isinstance(provider, dict) else None
    if manifest.providers is not None and name is not None and name not in manifest.providers:
        message = f"{MANIFEST_PATH}: the policy {manifest.name} may not talk to the provider {name}"
        raise BundleRefused(message, MANIFEST_PATH)


def _with_allowed_tools(context: dict[str, Any], manifest: Manifest) -> dict[str, Any]:
    schemas = context.get("tool_schemas")
    if manifest.tools is None or not isinstance(schemas, list | tuple):
        return context
    return {**context, "tool_schemas": [schema for schema in schemas if schema.get("name") in manifest.tools]}
