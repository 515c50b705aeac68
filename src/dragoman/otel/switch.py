"""Switch tracing on and off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dragoman._observer import observe
from dragoman.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


def instrument(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    content: bool = False,
    content_limit: int = 16_000,
) -> None:
    """Report every turn, model call, tool call and save of this process to OpenTelemetry, from now on.

    Without providers, OpenTelemetry's global ones are used. With `content`, spans also have prompts, answers, arguments
    and results, at most `content_limit` characters in an attribute and never the keys of models. A second call replaces
    the first.
    """
    if content_limit <= 0:
        message = f"content_limit is {content_limit}: no content would be left."
        raise ConfigurationError(message, hint="Leave content=True out, or allow some thousand characters.")
    try:
        from . import content as contents, spans
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        message = f"OpenTelemetry's API is not installed ({error})."
        raise ConfigurationError(message, hint="Install it with: pip install 'dragoman[otel]'.") from None
    writer = contents.Content(content_limit) if content else None
    observe(spans.OtelObserver(tracer_provider, meter_provider, writer))


def uninstrument() -> None:
    """Stop reporting; spans that have started are still finished."""
    observe(None)
