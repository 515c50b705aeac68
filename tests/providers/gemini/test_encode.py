"""Requests: paths, settings, tools, and how each block goes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from dragoman.conversation import (
    Json,
    Media,
    Message,
    Native,
    OneTool,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from dragoman.errors import ConfigurationError
from dragoman.providers.codec import Loss
from dragoman.providers.gemini import CODEC
from dragoman.providers.options import Reasoning, ResponseFormat
from tests.providers.gemini.case import a_call, contents, parts, profile_of, sent

HELLO = Message.user("hello")
WEATHER = ToolSpec(
    name="weather",
    description="The weather.",
    parameters=Raw(b'{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}'),
)
NOW = ToolSpec(name="now")
SIGNED = Native("gemini", {"thoughtSignature": Raw(b'"c2ln"')})
SKIP = "skip_thought_signature_validator"
GOOGLE = Raw(b'{"googleSearch":{}}')


class TestPath:
    @pytest.mark.parametrize(
        ("model", "path"),
        [
            ("gemini-2.5-flash", "/v1beta/models/gemini-2.5-flash"),
            ("models/gemini-2.5-flash", "/v1beta/models/gemini-2.5-flash"),
            ("tunedModels/mine-1", "/v1beta/tunedModels/mine-1"),
            ("publishers/google/models/gemini-3-flash", "/v1beta1/publishers/google/models/gemini-3-flash"),
            (
                "projects/p/locations/global/publishers/google/models/gemini-3-flash@001",
                "/v1beta1/projects/p/locations/global/publishers/google/models/gemini-3-flash@001",
            ),
            ("projects/p/locations/eu/endpoints/123", "/v1beta1/projects/p/locations/eu/endpoints/123"),
        ],
    )
    def test_by_name(self, model: str, path: str) -> None:
        assert CODEC.encode(a_call(HELLO, model=model)).request.path == f"{path}:generateContent"
        streaming = CODEC.encode(a_call(HELLO, model=model, stream=True)).request.path
        assert streaming == f"{path}:streamGenerateContent?alt=sse"

    @pytest.mark.parametrize(
        ("model", "path"),
        [("gemini-3-flash", "google/models/gemini-3-flash"), ("acme/model-1", "acme/models/model-1")],
    )
    def test_on_vertex(self, model: str, path: str) -> None:
        vertex = profile_of(model).with_changes(quirks=frozenset(["vertex"]))
        request = CODEC.encode(a_call(HELLO, model=model, profile=vertex)).request
        assert request.path == f"/v1beta1/publishers/{path}:generateContent"

    @pytest.mark.parametrize("model", ["", "a b", "a?key=1", "a#b", "../x", "a/../../b", "é", "a\n"])
    def test_what_is_no_name(self, model: str) -> None:
        with pytest.raises(ConfigurationError, match="cannot be the name of a model"):
            CODEC.encode(a_call(HELLO, model=model))

    def test_headers(self) -> None:
        assert CODEC.encode(a_call(HELLO, extra_headers={"x-a": "b"})).request.headers == {"x-a": "b"}


class TestSettings:
    def test_nothing_asked_nothing_sent(self) -> None:
        assert sent(a_call(HELLO)) == {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]}

    def test_parameters(self) -> None:
        body = sent(
            a_call(HELLO, max_tokens=5, temperature=0.0, top_p=0.5, top_k=3, stop=("a",), seed=0, system="Be kind.")
        )
        assert body["systemInstruction"] == {"parts": [{"text": "Be kind."}]}
        assert body["generationConfig"] == {
            "maxOutputTokens": 5,
            "temperature": 0.0,
            "topP": 0.5,
            "topK": 3,
            "stopSequences": ["a"],
            "seed": 0,
        }

    def test_a_parameter_of_another_name(self) -> None:
        profile = profile_of("x").with_changes(renamed={"max_tokens": "maxTokens"})
        body = json.loads(CODEC.encode(a_call(HELLO, profile=profile, max_tokens=5)).request.body)
        assert body["generationConfig"] == {"maxTokens": 5}

    @pytest.mark.parametrize("options", [{"user": "u"}, {"parallel_tool_calls": False}])
    def test_what_google_does_not_have(self, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            CODEC.encode(a_call(HELLO, **options))
        assert len(CODEC.encode(a_call(HELLO, **options, adapt=True)).adaptations) == 1

    @pytest.mark.parametrize(
        ("model", "key"), [("gemini-3-flash", "responseJsonSchema"), ("gemini-2.0-flash", "responseSchema")]
    )
    def test_a_schema_for_the_reply(self, model: str, key: str) -> None:
        wanted = ResponseFormat(schema=WEATHER.parameters, description="Say where.")
        config = sent(a_call(HELLO, model=model, response_format=wanted))["generationConfig"]
        assert config["responseMimeType"] == "application/json"
        assert config[key]["properties"].keys() == {"city"}
        assert config[key]["description"] == "Say where."

    def test_a_schema_with_tools(self) -> None:
        options = {"response_format": ResponseFormat(schema=WEATHER.parameters), "tools": (NOW,)}
        assert "responseJsonSchema" in sent(a_call(HELLO, **options))["generationConfig"]
        with pytest.raises(ConfigurationError, match="response_format with tools"):
            CODEC.encode(a_call(HELLO, model="gemini-2.5-flash", **options))
        body = sent(a_call(HELLO, model="gemini-2.5-flash", adapt=True, **options))
        assert "generationConfig" not in body
        assert "tools" in body


class TestThinking:
    @pytest.mark.parametrize(
        ("model", "reasoning", "config"),
        [
            ("gemini-3-flash", Reasoning(effort="minimal"), {"thinkingLevel": "MINIMAL", "includeThoughts": True}),
            ("gemini-3-pro-preview", Reasoning(effort="high", summary=False), {"thinkingLevel": "HIGH"}),
            ("gemini-3.8-flash", Reasoning(effort="medium"), {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
            ("gemini-3-flash-preview", Reasoning(budget=5000), {"thinkingLevel": "MEDIUM", "includeThoughts": True}),
            ("gemini-3-flash-preview", Reasoning(), {"includeThoughts": True}),
            ("gemini-2.5-flash", Reasoning(budget=512), {"thinkingBudget": 512, "includeThoughts": True}),
            ("gemini-2.5-flash", Reasoning(effort="low"), {"thinkingBudget": 1024, "includeThoughts": True}),
            ("gemini-2.5-flash", Reasoning(effort="none"), {"thinkingBudget": 0}),
            ("gemini-2.5-pro", Reasoning(effort="high", budget=99), {"thinkingBudget": 99, "includeThoughts": True}),
            ("gemini-3-flash", Reasoning(effort="low", budget=9), {"thinkingLevel": "LOW", "includeThoughts": True}),
        ],
    )  # fmt: skip
    def test_is_asked_for_as_the_model_takes_it(self, model: str, reasoning: Reasoning, config: dict[str, Any]) -> None:
        assert sent(a_call(HELLO, model=model, reasoning=reasoning))["generationConfig"]["thinkingConfig"] == config

    @pytest.mark.parametrize(
        ("model", "effort", "config"),
        [
            ("gemini-3-pro-preview", "none", {"thinkingLevel": "LOW"}),
            ("gemini-3-flash-preview", "none", {"thinkingLevel": "MINIMAL"}),
            ("gemini-3-flash-preview", "max", {"thinkingLevel": "HIGH"}),
            ("gemini-3.8-flash", "minimal", {"thinkingLevel": "LOW"}),
            ("gemini-2.5-pro", "none", {"thinkingBudget": 1024}),
        ],
    )
    def test_an_effort_that_the_model_does_not_know(self, model: str, effort: Any, config: dict[str, Any]) -> None:
        reasoning = Reasoning(effort=effort, summary=False)
        with pytest.raises(ConfigurationError, match="effort"):
            CODEC.encode(a_call(HELLO, model=model, reasoning=reasoning))
        body = sent(a_call(HELLO, model=model, reasoning=reasoning, adapt=True))
        assert body["generationConfig"]["thinkingConfig"] == config

    def test_translations_are_reported(self) -> None:
        budget = CODEC.encode(a_call(HELLO, model="gemini-2.5-flash", reasoning=Reasoning(effort="medium")))
        assert [str(one) for one in budget.adaptations] == [
            "reasoning.effort: this model is told a number of tokens: 'medium' became 8192"
        ]
        level = CODEC.encode(a_call(HELLO, reasoning=Reasoning(budget=100_000)))
        assert "100000 became 'high'" in str(level.adaptations[0])

    def test_models_that_do_not_think(self) -> None:
        with pytest.raises(ConfigurationError, match="reasoning"):
            CODEC.encode(a_call(HELLO, model="gemini-2.0-flash", reasoning=Reasoning(effort="low")))


class TestTools:
    def test_with_json_schema(self) -> None:
        (tool,) = sent(a_call(HELLO, tools=(WEATHER, NOW)))["tools"]
        weather, now = tool["functionDeclarations"]
        assert (weather["name"], weather["description"]) == ("weather", "The weather.")
        assert weather["parametersJsonSchema"]["properties"] == {"city": {"type": "string"}}
        assert now["name"] == "now"

    def test_with_geminis_own_schemas(self) -> None:
        (tool,) = sent(a_call(HELLO, model="gemini-2.0-flash", tools=(WEATHER, NOW)))["tools"]
        weather, now = tool["functionDeclarations"]
        assert weather["parameters"]["properties"].keys() == {"city"}
        assert "parameters" not in now, "an object without properties is refused"

    @pytest.mark.parametrize(
        ("choice", "config"),
        [
            ("auto", None),
            ("none", {"mode": "NONE"}),
            ("required", {"mode": "ANY"}),
            (OneTool("now"), {"mode": "ANY", "allowedFunctionNames": ["now"]}),
        ],
    )
    def test_choice(self, choice: Any, config: Any) -> None:
        body = sent(a_call(HELLO, tools=(WEATHER, NOW), tool_choice=choice))
        assert body.get("toolConfig") == (config and {"functionCallingConfig": config})
        assert "toolConfig" not in sent(a_call(HELLO, tool_choice=choice)), "refused without functions"

    def test_strict_tools_are_validated(self) -> None:
        strict = ToolSpec(name="s", strict=True)
        body = sent(a_call(HELLO, tools=(WEATHER, strict)))
        assert body["toolConfig"] == {"functionCallingConfig": {"mode": "VALIDATED"}}
        assert "toolConfig" not in sent(a_call(HELLO, model="gemini-2.0-flash", tools=(strict,)))

    def test_the_providers_own(self) -> None:
        assert sent(a_call(HELLO, server_tools=(GOOGLE,))) == {
            "contents": [{"role": "user", "parts": [{"text": "hello"}]}],
            "tools": [{"googleSearch": {}}],
        }

    def test_both_kinds(self) -> None:
        body = sent(a_call(HELLO, tools=(NOW,), server_tools=(GOOGLE,)))
        assert [list(tool) for tool in body["tools"]] == [["functionDeclarations"], ["googleSearch"]]
        assert body["toolConfig"] == {"includeServerSideToolInvocations": True}
        model = "publishers/google/models/gemini-3-flash"
        assert "toolConfig" not in sent(a_call(HELLO, model=model, tools=(NOW,), server_tools=(GOOGLE,)))
        with pytest.raises(ConfigurationError, match="server_tools with tools"):
            CODEC.encode(a_call(HELLO, model="gemini-2.5-pro", tools=(NOW,), server_tools=(GOOGLE,)))

    def test_names_that_google_refuses(self) -> None:
        """They have another name on the wire, in the declarations, the choice and the history."""
        odd = ToolSpec(name="files/read now")
        turn = HELLO, Message.assistant(ToolCall("1", odd.name)), Message.tool([ToolResult("1", odd.name)])
        call = a_call(*turn, tools=(odd, NOW), tool_choice=OneTool(odd.name))
        body = sent(call)
        wire = body["tools"][0]["functionDeclarations"][0]["name"]
        assert wire == "files_read_now"
        assert body["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"] == [wire]
        assert body["contents"][1]["parts"][0]["functionCall"]["name"] == wire
        assert body["contents"][2]["parts"][0]["functionResponse"]["name"] == wire
        assert CODEC.encode(call).tool_names == {wire: odd.name}
        later = sent(a_call(*turn))["contents"][1]["parts"][0]["functionCall"]["name"]
        assert later not in {odd.name, ""}, "a tool that is gone still needs a legal name"

    def test_models_without_functions(self) -> None:
        with pytest.raises(ConfigurationError, match="calls no functions"):
            CODEC.encode(a_call(HELLO, model="gemini-2.5-flash-image", tools=(NOW,)))
        assert "tools" not in sent(a_call(HELLO, model="gemini-2.5-flash-image", tools=(NOW,), adapt=True))


class TestExtraBody:
    def test_objects_are_laid_over_each_other(self) -> None:
        extra = {
            "generationConfig": {"temperature": 1.5, "responseModalities": ["TEXT"], "thinkingConfig": {}},
            "toolConfig": {"functionCallingConfig": {"streamFunctionCallArguments": True}},
            "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        }  # fmt: skip
        options = {"temperature": 0.5, "top_p": 0.5, "tools": (NOW,), "tool_choice": "required"}
        body = sent(a_call(HELLO, extra_body=extra, **options))
        assert body["generationConfig"] == {**extra["generationConfig"], "topP": 0.5}
        assert body["toolConfig"]["functionCallingConfig"] == {"mode": "ANY", "streamFunctionCallArguments": True}
        assert body["safetySettings"] == extra["safetySettings"]

    def test_anything_else_wins_as_a_whole(self) -> None:
        body = sent(a_call(HELLO, tools=(NOW,), system="s", extra_body={"tools": [{"urlContext": {}}]}))
        assert body["tools"] == [{"urlContext": {}}]

    def test_a_cached_content_brings_its_own(self) -> None:
        call = a_call(
            HELLO, system="s", tools=(NOW,), tool_choice="required", extra_body={"cachedContent": "cachedContents/1"}
        )
        assert sent(call).keys() == {"contents", "cachedContent"}
        assert [one.what for one in CODEC.encode(call).adaptations] == ["systemInstruction", "tools", "toolConfig"]


class TestContents:
    def test_the_user_is_first(self) -> None:
        empty = {"role": "user", "parts": [{"text": ""}]}
        assert contents() == [empty]
        assert contents(Message.assistant("I begin."), HELLO)[0] == empty

    def test_roles(self) -> None:
        turn = HELLO, Message.assistant(ToolCall("1", "f")), Message.tool([ToolResult("1", "f")]), HELLO
        assert [content["role"] for content in contents(*turn)] == ["user", "model", "user", "user"]

    def test_a_system_prompt_for_models_that_have_none(self) -> None:
        body = sent(a_call(HELLO, model="gemma-3-27b-it", system="Be kind."))
        assert "systemInstruction" not in body
        assert body["contents"][0] == {"role": "user", "parts": [{"text": "Be kind."}]}

    def test_empty_texts_are_left_out(self) -> None:
        assert parts(Message.assistant("", "a", "")) == [{"text": "a"}]
        assert parts(Message.user("")) == [{"text": ""}]
        assert len(contents(HELLO, Message.assistant(""), HELLO)) == 2

    def test_media(self) -> None:
        message = Message.user(
            Media.from_bytes(b"abc", "image/png", name="a.png"),
            Media.from_url("https://host/a.pdf"),
            Media(
                kind="video",
                mime_type="video/mp4",
                url="gs://b/f",
                native=Native("gemini", {"videoMetadata": Raw(b'{"fps":2.0}')}),
            ),
        )
        assert parts(message) == [
            {"inlineData": {"mimeType": "image/png", "data": "YWJj"}},
            {"fileData": {"mimeType": "application/pdf", "fileUri": "https://host/a.pdf"}},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "gs://b/f"}, "videoMetadata": {"fps": 2.0}},
        ]

    def test_media_that_the_model_does_not_take(self) -> None:
        call = a_call(Message.user(Media.from_bytes(b"a", "audio/wav")), model="gemma-3-27b-it")
        assert CODEC.encode(call).losses == (Loss(0, 0, "media", "this model does not take audio"),)
        assert sent(call)["contents"] == [{"role": "user", "parts": [{"text": ""}]}]

    def test_files_must_have_been_read(self) -> None:
        with pytest.raises(ConfigurationError, match="was not read"):
            CODEC.encode(a_call(Message.user(Media.from_path("a.png"))))

    def test_a_message_is_written_once(self) -> None:
        message = Message.user("hello")
        before = CODEC.encode(a_call(message)).request.body
        kept = [value for key, value in message.__dict__.items() if key.startswith("gemini")]
        assert len(kept) == 1
        assert kept[0].data in before
        CODEC.encode(a_call(message, model="gemini-2.0-flash"))
        assert len([key for key in message.__dict__ if key.startswith("gemini")]) == 2


class TestOwnReplies:
    def test_signatures_go_back_in_their_parts(self) -> None:
        message = Message.assistant(
            Thinking("hm", "gemini"),
            Thinking("so", "gemini", signature="dGhvdWdodA=="),
            Text("a", native=SIGNED),
            ToolCall("1", "f", "{}", native=SIGNED),
            ToolCall("2", "f", "{}"),
            Media(kind="image", mime_type="image/png", data=b"abc", native=SIGNED),
            Opaque("gemini", Raw(b'{"text":"","thoughtSignature":"ZW5k"}')),
        )
        assert parts(message) == [
            {"text": "hm", "thought": True},
            {"text": "so", "thought": True, "thoughtSignature": "dGhvdWdodA=="},
            {"text": "a", "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "1", "name": "f", "args": {}}, "thoughtSignature": "c2ln"},
            {"functionCall": {"id": "2", "name": "f", "args": {}}},
            {"inlineData": {"mimeType": "image/png", "data": "YWJj"}, "thoughtSignature": "c2ln"},
            {"text": "", "thoughtSignature": "ZW5k"},
        ]

    def test_members_of_the_data_go_back_too(self) -> None:
        further = Native("gemini", {"functionCall": Raw(b'{"mood":"calm"}'), "thought": Raw(b"true")})
        media = Media(
            kind="image",
            mime_type="image/png",
            data=b"",
            native=Native("gemini", {"inlineData": Raw(b'{"displayName":"d"}')}),
        )
        body = json.loads(
            CODEC.encode(a_call(HELLO, Message.assistant(ToolCall("1", "f", native=further), media))).request.body
        )
        assert body["contents"][1]["parts"] == [
            {"functionCall": {"id": "1", "name": "f", "mood": "calm"}, "thought": True, "thoughtSignature": SKIP},
            {"inlineData": {"mimeType": "image/png", "data": "", "displayName": "d"}},
        ]  # fmt: skip

    def test_made_up_ids_stay_here(self) -> None:
        call, result = ToolCall("call_gem_r_0", "f"), ToolResult("call_gem_r_0", "f", (Text("x"),))
        turn = contents(HELLO, Message.assistant(call), Message.tool([result]), model="gemini-2.0-flash")
        assert turn[1]["parts"] == [{"functionCall": {"name": "f"}}]
        assert turn[2]["parts"] == [{"functionResponse": {"name": "f", "response": {"output": "x"}}}]

    def test_thoughts_for_models_that_do_not_think(self) -> None:
        call = a_call(HELLO, Message.assistant(Thinking("hm", "gemini"), "a"), model="gemini-2.0-flash")
        assert sent(call)["contents"][1]["parts"] == [{"text": "a"}]
        assert [loss.what for loss in CODEC.encode(call).losses] == ["thinking"]

    def test_the_providers_tools_for_models_that_do_not_take_them_back(self) -> None:
        message = Message.assistant(
            Opaque("gemini", Raw(b'{"toolCall":{"toolType":"URL_CONTEXT","id":"1"}}')),
            Opaque("gemini", Raw(b'{"executableCode":{"code":"1"}}')),
        )
        for model in ("gemini-2.5-flash", "publishers/google/models/gemini-3-flash"):
            assert parts(message, model=model) == [{"executableCode": {"code": "1"}}]
        assert len(parts(message)) == 2

    def test_a_paused_reply_is_continued(self) -> None:
        paused = [
            Message(
                role="assistant",
                blocks=(Text(text),),
                stop_reason=StopReason.PAUSED,
                native=Native("gemini", {"continuationToken": Raw(token)}),
            )
            for text, token in (("one", b'"b25l"'), ("two", b'"dHdv"'))
        ]
        body = sent(a_call(HELLO, *paused))
        assert body["continuationToken"] == "dHdv"
        assert len(body["contents"]) == 1
        later = sent(a_call(HELLO, *paused, Message.user("go on")))
        assert "continuationToken" not in later
        assert len(later["contents"]) == 4


class TestOthersReplies:
    def test_the_first_call_of_each_message_needs_a_signature(self) -> None:
        message = Message.assistant("Let me see.", ToolCall("toolu_1", "f", '{"a":1}'), ToolCall("toolu_2", "f"))
        assert parts(message) == [
            {"text": "Let me see."},
            {"functionCall": {"id": "toolu_1", "name": "f", "args": {"a": 1}}, "thoughtSignature": SKIP},
            {"functionCall": {"id": "toolu_2", "name": "f"}},
        ]
        assert all("thoughtSignature" not in part for part in parts(message, model="gemini-2.5-flash"))

    def test_what_only_others_can_read(self) -> None:
        message = Message.assistant(
            Thinking("deep", "anthropic", signature="s"),
            Opaque("openai_responses", Raw(b'{"type":"web_search_call"}')),
            Text("a", native=Native("anthropic", {"citations": Raw(b"[]")})),
        )
        call = a_call(HELLO, message)
        assert sent(call)["contents"][1]["parts"] == [{"text": "a"}]
        assert CODEC.encode(call).losses == (
            Loss(1, 0, "thinking", "only anthropic can read it back"),
            Loss(1, 1, "opaque", "only openai_responses can read it back"),
        )

    def test_a_message_of_which_nothing_is_left(self) -> None:
        message = Message.assistant(Thinking("deep", "anthropic", signature="s"))
        assert len(contents(HELLO, message, HELLO)) == 2

    @pytest.mark.parametrize("arguments", ['{"a"', "[1]", '"x"', "nonsense"])
    def test_arguments_that_are_no_object(self, arguments: str) -> None:
        call = a_call(HELLO, Message.assistant(ToolCall("1", "f", arguments)))
        (part,) = sent(call)["contents"][1]["parts"]
        assert part["functionCall"]["args"] == {"arguments": arguments}
        assert [loss.what for loss in CODEC.encode(call).losses] == ["tool_call"]


class TestResults:
    @staticmethod
    def written(result: ToolResult, **options: Any) -> list[dict[str, Any]]:
        return contents(HELLO, Message.assistant(ToolCall("1", "f")), Message.tool([result]), **options)[2:]

    @pytest.mark.parametrize(
        ("content", "is_error", "response"),
        [
            ((Text("sunny"),), False, {"output": "sunny"}),
            ((Text("a"), Text("b")), False, {"output": "a\nb"}),
            ((Json(raw=Raw(b'{"t": 1.0}')),), False, {"t": 1.0}),
            ((Json(raw=Raw(b'{"output": 1, "more": 2}')),), False, {"output": {"output": 1, "more": 2}}),
            ((Json(raw=Raw(b'{"error": 1}')),), False, {"output": {"error": 1}}),
            ((Json(raw=Raw(b"[1, 2]")),), False, {"output": [1, 2]}),
            ((Json(raw=Raw(b"null")),), False, {"output": None}),
            ((Text("see"), Json(raw=Raw(b"[1]"))), False, {"output": "see\n[1]"}),
            ((), False, {"output": ""}),
            ((Text("no such city"),), True, {"error": "no such city"}),
            ((Json(raw=Raw(b'{"code": 7}')),), True, {"error": {"code": 7}}),
            ((), True, {"error": ""}),
        ],
    )
    def test_what_the_model_reads(self, content: Any, is_error: bool, response: Any) -> None:
        (answer,) = self.written(ToolResult("1", "f", content, is_error=is_error))
        assert answer == {
            "role": "user",
            "parts": [{"functionResponse": {"id": "1", "name": "f", "response": response}}],
        }

    PICTURE = Media.from_bytes(b"abc", "image/png")
    SOUND = Media.from_bytes(b"abc", "audio/wav")

    def test_media_in_the_response(self) -> None:
        (answer,) = self.written(ToolResult("1", "f", (self.PICTURE, Media.from_url("https://host/a.pdf"))))
        assert answer["parts"][0]["functionResponse"] == {
            "id": "1",
            "name": "f",
            "response": {},
            "parts": [
                {"inlineData": {"mimeType": "image/png", "data": "YWJj"}},
                {"fileData": {"mimeType": "application/pdf", "fileUri": "https://host/a.pdf"}},
            ],
        }

    @pytest.mark.parametrize(("model", "media"), [("gemini-3-flash", SOUND), ("gemini-2.5-flash", PICTURE)])
    def test_media_behind_the_response(self, model: str, media: Media) -> None:
        """In a content of their own: beside a response they would count as the model's words."""
        result = ToolResult("1", "f", (Text("see"), media))
        answer, behind = self.written(result, model=model)
        assert [list(part) for part in answer["parts"]] == [["functionResponse"]]
        assert behind["role"] == "user"
        assert [list(part) for part in behind["parts"]] == [["text"], ["inlineData"]]
        call = a_call(HELLO, Message.assistant(ToolCall("1", "f")), Message.tool([result]), model=model)
        assert [(loss.message, loss.what) for loss in CODEC.encode(call).losses] == [(2, "tool_result")]

    def test_media_that_the_model_does_not_take_at_all(self) -> None:
        (answer,) = self.written(ToolResult("1", "f", (self.SOUND,)), model="gemma-3-27b-it")
        assert answer["parts"] == [{"functionResponse": {"id": "1", "name": "f", "response": {}}}]
