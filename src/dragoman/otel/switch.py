"""Tracing on and off."""

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
    """Tell OpenTelemetry of every turn, model call, tool call and save of this process, from now on.

    Without providers the ones that the program has set up for all of OpenTelemetry are used. With `content` spans also
    have what was said: prompts, answers, arguments and results, at most `content_limit` characters in an attribute,
    never the keys of models. A second call takes the place of the first.
    """
    if content_limit <= 0:
        message = f"content_limit is {content_limit}: no content would be left."
        raise ConfigurationError(message, hint="Leave content=True out, or allow some thousand characters.")
    try:
        from . import content as contents, spans
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        message = f"The interface of OpenTelemetry is not installed ({error})."
        raise ConfigurationError(message, hint="Install it with: pip install 'dragoman[otel]'.") from None
    kept = contents.Content(content_limit) if content else None
    observe(spans.OtelObserver(tracer_provider, meter_provider, kept))


def uninstrument() -> None:
    """Tell OpenTelemetry nothing more; what has begun is told to its end."""
    observe(None)
