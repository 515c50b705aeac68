"""How a chat is set up, in one value.

Owns: Config, the checks that hold wherever a value came from, and what the rooms below are told of it.
Must not know: files and environment variables (load.py reads them). A Config made by hand is as good as a loaded one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypedDict

import msgspec
from msgspec import Struct

from dragoman.chat.credentials.find import Found, find_key
from dragoman.chat.credentials.reference import KeyReference
from dragoman.engines.factory import EngineOptions, is_registered
from dragoman.engines.keys import Secret
from dragoman.errors import ConfigurationError
from dragoman.providers.model_name import provider_of, split_model
from dragoman.providers.options import ModelOptions
from dragoman.providers.profile import Profile
from dragoman.tools.run import ToolConfig
from dragoman.transport.addresses import validate_base_url
from dragoman.transport.protocol import Timeouts, Transport
from dragoman.transport.retry import RetryPolicy

from .address import address_of
from .defaults import DEFAULT_PROVIDER, default_max_tokens, default_model
from .fields import FIELDS, checked
from .shown import shown_url

__all__ = ["Config", "ConfigArguments"]


class Config(Struct, frozen=True, kw_only=True):
    """How a chat is set up. Every field has a default; what is empty is filled in by the provider's own."""

    # --- which model, where, by which key ---
    provider: str = ""
    """As before the colon in `provider:model`; empty: the one that the model's name says."""
    model: str = ""
    """With or without its provider; empty: the provider's default model."""
    token: str | Secret | None = None
    """The key. Kept as a Secret; None: it is looked up (see dragoman.chat.credentials)."""
    base_url: str = ""
    """Empty: the provider's own address."""
    keys: Mapping[str, KeyReference] = {}
    """Where keys are to be found, by provider."""
    # --- what is said ---
    system_prompt: str = ""
    response_schema: object = None
    """The type, or the JSON Schema, of every answer; None: text."""
    schema_name: str = ""
    schema_description: str = ""
    # --- how far it may go ---
    max_steps: int = 20
    """Calls of the model for one question."""
    max_tokens: int | None = None
    """The most tokens of one reply; None: 4096 for OpenAI, 8192 for Claude and Gemini, else as the provider does."""
    parallel_tools: bool = True
    """Whether the tools of one step run at the same time."""
    max_parallel_tools: int = 5
    """… and how many of them, if they do."""
    strict: bool = False
    """Refuse a history of which the model would not get every part."""
    options: ModelOptions = ModelOptions()
    """What else is asked of the model: temperature, reasoning, …"""
    tool_config: ToolConfig = ToolConfig()
    """How else tools are used: timeouts, budgets, errors."""
    retry: RetryPolicy = RetryPolicy()
    timeouts: Timeouts = Timeouts()
    # --- code only: neither a file nor a variable can say these ---
    allow_insecure_base_url: bool = False
    """Let the base URL be http:// on another machine, for tests."""
    headers: Mapping[str, str] = {}
    """Further headers of every request."""
    model_profile: Profile | Mapping[str, object] = {}
    """What the model can do, or the fields in which it differs from what the catalogue says."""
    transport: Transport | None = None
    async_transport: Transport | None = None
    find_program: Callable[[str], str | None] | None = None
    """How a program such as `claude` is found, as shutil.which does."""

    def __post_init__(self) -> None:
        if isinstance(self.token, str):
            msgspec.structs.force_setattr(self, "token", Secret(self.token) if self.token else None)
        for field in FIELDS.values():
            if len(field.path) == 1 and field.simple:
                checked(field, getattr(self, field.name), f"the argument {field.name}")
        validate_base_url(self.base_url, allow_insecure=self.allow_insecure_base_url)

    def __repr__(self) -> str:
        """What differs from the defaults; keys, headers and the query of the base URL are not shown."""
        plain = _PLAIN
        shown = [
            f"{name}={_shown(name, getattr(self, name))}"
            for name in self.__struct_fields__
            if getattr(self, name) != getattr(plain, name)
        ]
        return f"Config({', '.join(shown)})"

    # --- what it comes to ---

    @property
    def provider_name(self) -> str:
        """The provider by its own name: `anthropic` for `claude`."""
        return self._address()[0]

    @property
    def model_name(self) -> str:
        """`provider:model`, as engines are named."""
        provider, model = self._address()
        if not model:
            message = f"No model was chosen, and {provider} has no default."
            raise ConfigurationError(message, hint=f"Say which: model='{provider}:…'.")
        return f"{provider}:{model}"

    def _address(self) -> tuple[str, str]:
        provider, model = address_of(self.provider, self.model)
        if model and not provider:
            provider, model = split_model(model)  # raises: nobody says which provider has it
        provider = provider or DEFAULT_PROVIDER
        if not is_registered(provider):
            provider = provider_of(provider)
        return provider, model or default_model(provider)

    @property
    def secret(self) -> Secret | None:
        """The token, where one was given."""
        return self.token if isinstance(self.token, Secret) else None

    def key(self, environ: Mapping[str, str] | None = None) -> Found | None:
        """The key and where it was found; None where none is needed. Raises MissingKeyError."""
        return find_key(self.provider_name, token=self.secret, keys=self.keys, environ=environ)

    def for_model(self) -> ModelOptions:
        """What is asked of the model."""
        limit = self.max_tokens or self.options.max_tokens or default_max_tokens(self.provider_name)
        return msgspec.structs.replace(self.options, max_tokens=limit)

    def for_tools(self) -> ToolConfig:
        """How tools are used."""
        at_once = self.max_parallel_tools if self.parallel_tools else 1
        return msgspec.structs.replace(self.tool_config, max_iterations=self.max_steps, max_parallel_tools=at_once)

    def for_engine(self, environ: Mapping[str, str] | None = None) -> EngineOptions:
        """What `engine` and `async_engine` take beside `model_name`. The key is looked up now."""
        found = self.key(environ)
        options: EngineOptions = {
            "key": None if found is None else found.secret,
            "base_url": self.base_url or None,
            "options": self.for_model(),
            "profile": self.model_profile,
            "strict": self.strict,
            "retry": self.retry,
            "timeouts": self.timeouts,
            "headers": self.headers,
            "allow_insecure_base_url": self.allow_insecure_base_url,
        }
        if self.find_program is not None:
            options["find_program"] = self.find_program
        return options


class ConfigArguments(TypedDict, total=False):
    """The fields of Config, as arguments of load_config; None says nothing."""

    provider: str | None
    model: str | None
    token: str | Secret | None
    base_url: str | None
    keys: Mapping[str, KeyReference] | None
    system_prompt: str | None
    response_schema: object
    schema_name: str | None
    schema_description: str | None
    max_steps: int | None
    max_tokens: int | None
    parallel_tools: bool | None
    max_parallel_tools: int | None
    strict: bool | None
    options: ModelOptions | Mapping[str, object] | None
    tool_config: ToolConfig | Mapping[str, object] | None
    retry: RetryPolicy | Mapping[str, object] | None
    timeouts: Timeouts | Mapping[str, object] | None
    allow_insecure_base_url: bool | None
    headers: Mapping[str, str] | None
    model_profile: Profile | Mapping[str, object] | None
    transport: Transport | None
    async_transport: Transport | None
    find_program: Callable[[str], str | None] | None


def _shown(name: str, value: object) -> str:
    if name == "base_url":
        return repr(shown_url(str(value)))
    if name == "token":
        return "Secret('…')"
    return "{…}" if name == "headers" else repr(value)


_PLAIN = Config()
