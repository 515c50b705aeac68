"""Who is measured: one row for each contender.

Owns: names, what is installed for each, how each is imported. What each does is in bench/contenders/.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CONTENDERS", "FLOOR", "OURS", "PEERS", "Contender"]

FLOOR, OURS = "floor", "dragoman"


class Contender(NamedTuple):
    name: str
    environment: str
    """The directory below .dev/bench, and the list in requirements/bench."""
    requirements: tuple[str, ...]
    """What the pinned list is made from."""
    imports: str
    """What a program writes that uses it; empty where that is not measured."""
    home: str
    """The dialect in which everything is measured; in the others, a turn and a stream."""
    distribution: str
    how: str
    """How it is used, for the page."""
    ready: str
    """What a program writes until it can ask; empty where there is nothing to make."""

    @property
    def module(self) -> str:
        return self.name.replace("-", "_")


def _row(
    name: str,
    imports: str,
    how: str,
    *requirements: str,
    home: str = "openai_chat",
    distribution: str = "",
    environment: str = "",
    ready: str = "",
) -> Contender:
    made = f"{imports}; {ready}" if ready else ""
    return Contender(name, environment or name, requirements or (name,), imports, home, distribution or name, how, made)


CONTENDERS = {
    row.name: row
    for row in (
        _row(
            FLOOR,
            "import socket, msgspec",
            "a raw socket, or a protocol of asyncio, and msgspec; written for this page only",
            environment=OURS,
            distribution="msgspec",
        ),
        _row(
            OURS,
            "from dragoman import ChatClient",
            "`ChatClient` and `AsyncChatClient`, stateless",
            ready="ChatClient('openai:gpt-4o', key='k')",
        ),
        _row(
            "openai",
            "from openai import OpenAI",
            "`OpenAI` and `AsyncOpenAI`; the loop of the tools by hand",
            ready="OpenAI(api_key='k')",
        ),
        _row(
            "anthropic",
            "from anthropic import Anthropic",
            "`Anthropic` and `AsyncAnthropic`, `messages.create`; the loop of the tools by hand",
            home="anthropic",
            ready="Anthropic(api_key='k')",
        ),
        _row(
            "google-genai",
            "from google import genai",
            "`genai.Client` and its `aio`; functions as tools, called by it",
            home="gemini",
            ready="genai.Client(api_key='k')",
        ),
        _row(
            "pydantic-ai",
            "from pydantic_ai import Agent",
            "`Agent.run_sync`, `Agent.run` and `run_stream_events`",
            "pydantic-ai-slim[openai,anthropic,google]",
            distribution="pydantic-ai-slim",
            ready=(
                "from pydantic_ai.models.openai import OpenAIChatModel as M; "
                "from pydantic_ai.providers.openai import OpenAIProvider as P; "
                "Agent(M('gpt-4o', provider=P(api_key='k')))"
            ),
        ),
        _row(
            "litellm",
            "import litellm",
            "`completion` and `acompletion`; the loop of the tools by hand",
            "litellm",
            "mcp",
        ),
        _row(
            "langchain",
            "from langchain_openai import ChatOpenAI",
            "`ChatOpenAI` and its kin with `invoke` and `stream`; `create_agent` for the tools",
            "langchain",
            "langchain-openai",
            "langchain-anthropic",
            "langchain-google-genai",
            ready="ChatOpenAI(model='gpt-4o', api_key='k')",
        ),
        _row(
            "any-llm",
            "from any_llm import AnyLLM",
            "`AnyLLM.create(…)`, `completion` and `acompletion`; the loop of the tools by hand",
            "any-llm-sdk[openai,anthropic,gemini]",
            distribution="any-llm-sdk",
            ready="AnyLLM.create('openai', api_key='k')",
        ),
        _row(
            "openai-agents",
            "from agents import Agent, Runner",
            "`Runner.run_sync`, `Runner.run` and `Runner.run_streamed`, tracing disabled",
            ready="from openai import AsyncOpenAI; AsyncOpenAI(api_key='k'); Agent('a', model='gpt-4o')",
        ),
        _row(
            "mirascope",
            "from mirascope import llm",
            "`llm.model(…)` with `call` and `stream`; `response.execute_tools()` and `resume`",
            "mirascope[openai,anthropic,google]",
        ),
        _row(
            "aisuite",
            "import aisuite",
            "`Client().chat.completions.create`, with `max_turns` for the tools",
            "aisuite[openai,anthropic]",
            ready="from aisuite.provider import ProviderFactory as F; F.create_provider('openai', {'api_key': 'k'})",
        ),
        _row(
            "llm",
            "import llm",
            "`get_model(…).prompt` and `chain`, and their async twins",
            ready="llm.get_model('gpt-4o')",
        ),
    )
}

PEERS = tuple(name for name in CONTENDERS if name not in (FLOOR, OURS))
REFERENCES = {"httpx": "import httpx", "asyncio": "import asyncio", "msgspec": "import msgspec"}
"""What else is imported for comparison; httpx from an environment of its own, the others from ours."""
