"""The spans of one scripted conversation as three libraries tell them: `python bench/tracing_peers.py`.

A question, the call of a tool, an answer, from a simulator on this machine: with dragoman, with pydantic-ai, and with
OpenAI's SDK under OpenTelemetry's own instrumentation of it (the -v2 one), each with content switched on. The spans are
printed side by side: which attribute who has, and with which value. docs/tracing.md lists the differences.

Run it with the environment of the checks (.dev/env); the peers have one of their own (.dev/bench/tracing).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

RECORD = """
import json, sys
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
base_url = sys.argv[1]
exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
tracers, meters = TracerProvider(), MeterProvider([reader])
tracers.add_span_processor(SimpleSpanProcessor(exporter))
"""
PRINT = """
spans = [
    {"name": s.name, "kind": s.kind.name, "attributes": dict(s.attributes), "events": [e.name for e in s.events]}
    for s in exporter.get_finished_spans()
]
data = reader.get_metrics_data()
metrics = [] if data is None else [
    m.name for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics
]
print(json.dumps({"spans": spans, "metrics": sorted(metrics)}, default=str))
"""
OURS = """
from dragoman import ChatClient, ModelOptions
from dragoman.otel import instrument
instrument(tracer_provider=tracers, meter_provider=meters, content=True)
def weather(city: str) -> str:
    "The weather."
    return "Sunny."
options = {"options": ModelOptions(max_tokens=500, temperature=0.5), "base_url": base_url, "key": "test-key"}
with ChatClient("openai:gpt-4o", [weather], system="Be brief.", **options) as client:
    client.chat("The weather in Lyon?")
"""
PYDANTIC_AI = """
from pydantic_ai import Agent, ModelSettings
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
model = OpenAIChatModel("gpt-4o", provider=OpenAIProvider(base_url=base_url, api_key="test-key"))
settings = InstrumentationSettings(tracer_provider=tracers, meter_provider=meters)
Agent.instrument_all(settings)
agent = Agent(model, instructions="Be brief.", model_settings=ModelSettings(max_tokens=500, temperature=0.5))
@agent.tool_plain
def weather(city: str) -> str:
    "The weather."
    return "Sunny."
agent.run_sync("The weather in Lyon?")
"""
OPENAI = """
import os
os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
OpenAIInstrumentor().instrument(tracer_provider=tracers, meter_provider=meters)
import openai
client = openai.OpenAI(base_url=base_url, api_key="test-key")
tool = {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "The weather in Lyon?"}]
options = {"model": "gpt-4o", "tools": [tool], "max_tokens": 500, "temperature": 0.5}
for _ in range(2):
    reply = client.chat.completions.create(messages=messages, **options)
    said = reply.choices[0].message
    messages.append(said.model_dump(exclude_none=True))
    for call in said.tool_calls or ():
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "Sunny."})
"""


def told(python: str, program: str) -> dict[str, Any]:
    """What a program tells OpenTelemetry of the conversation."""
    from dragoman.conversation import ToolCall
    from dragoman.simulator import Reply, Simulator

    script = [Reply(ToolCall("call_1", "weather", '{"city":"Lyon"}')), Reply("Sunny in Lyon.")]
    with Simulator(script) as simulator:
        words = [python, "-c", RECORD + program + PRINT, simulator.base_url("openai")]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    from bench.environments import make

    peers = sys.argv[1] if sys.argv[1:] else str(make("tracing"))
    all_told = {
        "dragoman": told(sys.executable, OURS),
        "pydantic-ai": told(peers, PYDANTIC_AI),
        "openai-v2": told(peers, OPENAI),
    }
    for name, found in all_told.items():
        print(f"\n{name}: metrics {', '.join(found['metrics'])}")
        for span in found["spans"]:
            print(f"  {span['name']} ({span['kind'].lower()}) {' '.join(span['events'])}")
    for operation in ("invoke_agent", "chat", "execute_tool"):
        seen: dict[str, dict[str, Any]] = {}
        for name, found in all_told.items():
            for span in found["spans"]:
                if span["attributes"].get("gen_ai.operation.name") == operation:
                    seen[name] = span["attributes"]
                    break
        print(f"\n{operation}, the first one:")
        for key in sorted({key for attributes in seen.values() for key in attributes}):
            print(f"  {key}")
            for name, attributes in seen.items():
                print(f"    {name:12} {str(attributes.get(key, '—'))[:110]}")


if __name__ == "__main__":
    main()
