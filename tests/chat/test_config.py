"""The sources, their order, and what each of them may say."""

from __future__ import annotations

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from dragoman.chat import Config, ConfigWarning, KeyReference, find_key, load_config, new
from dragoman.engines import Credential, Secret
from dragoman.errors import ConfigFileError, ConfigurationError, InvalidBaseURLError
from dragoman.loop import Limits
from dragoman.providers import ModelOptions, Prices, Reasoning
from dragoman.tools import ToolConfig, ToolErrorHandling
from dragoman.transport import PoolLimits, RetryPolicy, Timeouts
from tests.chat.surroundings import Surroundings, write


def test_each_source_overrides_the_next(here: Surroundings) -> None:
    here.user("max_steps = 1")
    assert here.load().config.max_steps == 1
    here.says("max_steps = 2")
    assert here.load().config.max_steps == 2
    here.environ["DRAGOMAN_MAX_STEPS"] = "3"
    assert here.load().config.max_steps == 3
    loaded = here.load(max_steps=4)
    assert loaded.config.max_steps == 4
    [row] = [row for row in loaded.explain() if row.field == "max_steps"]
    assert row.origin == "the argument max_steps"
    assert row.overridden == (
        "environment variable DRAGOMAN_MAX_STEPS",
        f"{here.project_file}, line 1",
        f"{here.user_file}, line 1",
    )
    assert here.load(max_steps=None).config.max_steps == 3, "None says nothing"


def test_defaults_of_the_seed() -> None:
    config = Config()
    assert (config.max_steps, config.parallel_tools, config.max_parallel_tools) == (20, True, 5)
    assert Config(provider="openai").for_model().max_tokens == 4096
    assert Config(provider="gemini").for_model().max_tokens == 8192
    assert Config(provider="openai", max_tokens=7).for_model().max_tokens == 7
    assert Config(provider="groq", model="x").for_model().max_tokens is None


def test_the_provider_argument_then_ai_provider_then_the_file(here: Surroundings) -> None:
    assert here.load().config.provider_name == "openai"
    here.user('[ai]\nprovider = "gemini"')
    assert here.load().config.provider_name == "gemini"
    here.environ["AI_PROVIDER"] = "claude"
    loaded = here.load()
    assert loaded.config.provider_name == "anthropic"
    assert loaded.known["provider",].origin == "environment variable AI_PROVIDER"
    here.environ["DRAGOMAN_PROVIDER"] = "groq"
    assert here.load().config.provider_name == "groq", "our own variable is the more particular one"
    assert here.load(provider="openai").config.provider_name == "openai"


def test_another_provider_drops_model_and_address_of_lower_sources(here: Surroundings) -> None:
    here.user(
        """
        provider = "openai-compatible"
        model = "qwen3"
        base_url = "http://localhost:11434/v1"
        """
    )
    assert here.load().config.model_name == "openai-compatible:qwen3"
    config = here.load(provider="claude").config
    assert (config.model_name, config.base_url) == ("anthropic:claude-sonnet-4-5", "")
    config = here.load(model="gemini:gemini-2.5-flash").config
    assert (config.model_name, config.base_url) == ("gemini:gemini-2.5-flash", "")
    here.environ["DRAGOMAN_BASE_URL"] = "https://proxy.test/v1"
    assert here.load(provider="claude").config.base_url == "https://proxy.test/v1", "said for no provider in particular"


@pytest.mark.parametrize(
    ("below", "provider", "model", "expected"),
    [
        ("", "", "gpt-4o", "openai:gpt-4o"),
        ("", "", "anthropic/claude-opus-4-6", "anthropic:claude-opus-4-6"),
        ("claude", "", "gpt-4o", "openai:gpt-4o"),
        ("openai-responses", "", "gpt-4o", "openai-responses:gpt-4o"),
        ("openrouter", "", "openai/gpt-4o", "openrouter:openai/gpt-4o"),
        ("openrouter", "", "openai:gpt-4o", "openai:gpt-4o"),
        ("ollama", "", "mistral:7b", "ollama:mistral:7b"),
        ("ollama", "", "mistral:mistral-large", "mistral:mistral-large"),
        ("openai", "claude", "anthropic:claude-opus-4-6", "anthropic:claude-opus-4-6"),
        ("openai", "openrouter", "anthropic/claude-3", "openrouter:anthropic/claude-3"),
        ("openai", "CLAUDE", "", "anthropic:claude-sonnet-4-5"),
    ],
)
def test_provider_and_model(here: Surroundings, below: str, provider: str, model: str, expected: str) -> None:
    if below:
        here.user(f'provider = "{below}"')
    assert here.load(provider=provider or None, model=model or None).config.model_name == expected


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="no provider 'antropic'.*Did you mean anthropic"):
        Config(provider="antropic").model_name  # noqa: B018 - the access is the test
    with pytest.raises(ConfigurationError, match="does not say which provider"):
        Config(model="llama-x").model_name  # noqa: B018
    with pytest.raises(ConfigurationError, match="No model was chosen, and groq has no default"):
        Config(provider="groq").model_name  # noqa: B018


def test_a_profile_overrides_its_file(here: Surroundings) -> None:
    here.user(
        """
        provider = "openai"
        max_steps = 1
        options.temperature = 0.1

        [profiles.work]
        model = "gpt-4o"
        max_steps = 2
        [profiles.work.options]
        seed = 1
        [profiles.work.keys.openai]
        env = "WORK_KEY"
        """
    )
    assert here.load().config.keys == {}
    config = here.load(profile="work").config
    assert (config.model, config.max_steps, config.provider) == ("gpt-4o", 2, "openai")
    assert (config.options.temperature, config.options.seed) == (0.1, 1)
    assert config.keys["openai"].env == "WORK_KEY"
    here.environ["DRAGOMAN_PROFILE"] = "work"
    loaded = here.load()
    assert loaded.known["max_steps",].origin == f"{here.user_file}, line 8"
    assert here.load(profile="").config.max_steps == 1, "an empty name is none"
    with pytest.raises(ConfigurationError, match="no profile 'wrok'.*work"):
        here.load(profile="wrok")


def test_a_named_file_replaces_the_others(here: Surroundings, tmp_path: Path) -> None:
    here.user("max_steps = 1")
    here.says("max_tokens = 2")
    named = write(tmp_path / "ci.toml", 'base_url = "https://ci.test"')
    config = here.load(file=named).config
    assert (config.max_steps, config.max_tokens, config.base_url) == (20, None, "https://ci.test")
    here.environ["DRAGOMAN_CONFIG"] = str(named)
    loaded = here.load()
    assert loaded.files == (named,)
    here.environ["DRAGOMAN_CONFIG"] = str(tmp_path / "missing.toml")
    with pytest.raises(ConfigFileError, match="missing.toml cannot be read: No such file"):
        here.load()


def test_the_search_ends_below_the_home_directory(here: Surroundings) -> None:
    write(here.home / "dragoman.toml", "max_steps = 2")
    assert here.load().config.max_steps == 20
    assert here.load(directory=here.home).config.max_steps == 20
    write(here.home.parent / "dragoman.toml", "max_steps = 3")
    assert here.load().config.max_steps == 20
    elsewhere = here.home.parent / "elsewhere"
    elsewhere.mkdir()
    assert here.load(directory=elsewhere).config.max_steps == 3, "outside of the home directory it goes up to the root"


def test_a_field_of_every_kind_from_a_file(here: Surroundings) -> None:
    here.user(
        """
        system_prompt = "Be brief."
        parallel_tools = false
        response_schema = { type = "object" }

        [options]
        temperature = 1
        stop = ["END"]
        reasoning = { effort = "high" }
        extra_body = { provider = { sort = "price" } }

        [tool_config]
        allowed_tools = ["read"]
        tool_error_handling = "abort"
        tool_choice = "required"
        retry = { max_retries = 1 }

        [timeouts]
        read = 30
        total = inf

        [retry]
        max_attempts = 1
        """
    )
    config = here.load().config
    assert config.response_schema == {"type": "object"}
    assert config.options == ModelOptions(
        temperature=1.0, stop=("END",), reasoning=Reasoning(effort="high"), extra_body={"provider": {"sort": "price"}}
    )
    assert config.timeouts == Timeouts(read=30.0, total=math.inf) == Timeouts(read=30.0, total=None)
    tools = config.for_tools()
    assert tools.allowed_tools == {"read"}
    assert tools.tool_error_handling is ToolErrorHandling.ABORT
    assert (tools.retry.max_retries, tools.max_parallel_tools, tools.max_iterations) == (1, 1, 20)
    assert Config(max_steps=3).for_tools().max_iterations == 3
    assert Config().for_tools().max_parallel_tools == 5, "tools run side by side unless told otherwise"


def test_variables_of_every_kind(here: Surroundings) -> None:
    here.environ |= {
        "DRAGOMAN_SYSTEM_PROMPT": "42",
        "DRAGOMAN_PARALLEL_TOOLS": "true",
        "DRAGOMAN_MAX_TOKENS": " 7 ",
        "DRAGOMAN_OPTIONS_TEMPERATURE": "0.5",
        "DRAGOMAN_OPTIONS_STOP": "a, b",
        "DRAGOMAN_OPTIONS_REASONING": '{"effort": "low"}',
        "DRAGOMAN_TOOL_CONFIG_TOOL_CHOICE": "none",
        "DRAGOMAN_TIMEOUTS_READ": "5",
        "DRAGOMAN_RESPONSE_SCHEMA": '{"type": "object"}',
        "DRAGOMAN_MODEL": "",
    }
    config = here.load().config
    assert (config.system_prompt, config.parallel_tools, config.max_tokens) == ("42", True, 7)
    assert config.options == ModelOptions(temperature=0.5, stop=("a", "b"), reasoning=Reasoning(effort="low"))
    assert config.tool_config.tool_choice == "none"
    assert config.timeouts.read == 5.0
    assert config.response_schema == {"type": "object"}
    assert config.model == ""


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        (
            "DRAGOMAN_MAX_STEPS",
            "many",
            "max_steps does not fit (environment variable DRAGOMAN_MAX_STEPS): expected int",
        ),
        ("DRAGOMAN_MAX_STEPS", "0", "expected int >= 1"),
        ("DRAGOMAN_OPTIONS_TEMPERATURE", "NaN", "a number"),
        ("DRAGOMAN_TOOL_CONFIG_TOOL_CHOICE", "some", "'some'"),
        (
            "DRAGOMAN_TOKEN",
            "sk-1",
            "token cannot be set by an environment variable (DRAGOMAN_TOKEN). Set the provider's own variable",
        ),
        ("DRAGOMAN_API_KEY", "sk-secret", "token cannot be set by an environment variable (DRAGOMAN_API_KEY)"),
        ("DRAGOMAN_ALLOW_INSECURE_BASE_URL", "1", "cannot be set by an environment variable"),
        ("DRAGOMAN_OPTIONS_EXTRA_HEADERS", "{}", "cannot be set by an environment variable"),
    ],
)
def test_wrong_variables_are_refused(here: Surroundings, variable: str, text: str, says: str) -> None:
    here.environ[variable] = text
    with pytest.raises(ConfigurationError) as caught:
        here.load()
    assert says in str(caught.value)
    assert "sk-1" not in str(caught.value)


def test_a_misspelt_variable_causes_a_warning(here: Surroundings) -> None:
    here.environ["DRAGOMAN_SOMETHING_OF_ANOTHER_PROGRAM"] = "1"
    here.load()
    here.environ["DRAGOMAN_MODLE"] = "gpt-4o"
    with pytest.warns(ConfigWarning, match="DRAGOMAN_MODLE is not known.*DRAGOMAN_MODEL"):
        here.load()


def test_two_variables_for_one_setting_are_refused(here: Surroundings) -> None:
    here.environ |= {"DRAGOMAN_MAX_TOKENS": "1", "DRAGOMAN_OPTIONS_MAX_TOKENS": "2"}
    with pytest.raises(ConfigurationError, match="max_tokens is set twice: by .*MAX_TOKENS, and by .*MAX_TOKENS"):
        here.load()


def test_arguments_of_every_kind(here: Surroundings) -> None:
    here.user("options.temperature = 0.5\noptions.seed = 1")
    config = here.load(options=ModelOptions(seed=2, extra_headers={"x-a": "b"}), headers={"x-team": "a"}).config
    assert config.options == ModelOptions(temperature=0.5, seed=2, extra_headers={"x-a": "b"})
    assert config.headers == {"x-team": "a"}
    assert here.load(options={"seed": 3}).config.options.seed == 3
    assert here.load(keys={"claude": KeyReference(env="X")}).config.keys["anthropic"].env == "X"


@pytest.mark.parametrize(
    ("make", "wrong", "says"),
    [
        (Config, {"max_steps": 0}, "max_steps of Config does not fit: expected int >= 1"),
        (Config, {"retry": {"max_atempts": 2}}, "unknown field max_atempts"),
        (Config, {"headers": {"x": 3, "authorization": "sk-secret"}}, "headers of Config does not fit"),
        (Config, {"keys": ["sk-secret"]}, "keys of Config does not fit"),
        (Config, {"max_steps": 3, "tool_config": ToolConfig(max_iterations=4)}, "max_steps and tool_config.max_iter"),
        (Config, {"modle": "x"}, "Config has no setting 'modle'. Did you mean model"),
        (ModelOptions, {"extra_headers": {"a": 3, "b": "sk-secret"}}, "extra_headers of ModelOptions does not fit"),
        (Limits, {"tokens": float("nan")}, "tokens of Limits does not fit: expected float >= 0.0"),
        (Limits, {"steps": -1}, "steps of Limits does not fit"),
        (Prices, {"input": -1.0, "output": 1.0}, "input of Prices does not fit: expected float >= 0.0"),
        (Timeouts, {"read": -1}, "read of Timeouts does not fit: expected float >= 0.0"),
        (Timeouts, {"total": float("nan")}, "total of Timeouts does not fit"),
        (Timeouts, {"conect": 1}, "no setting 'conect'. Did you mean connect"),
        (RetryPolicy, {"max_attempts": 0}, "expected int >= 1"),
        (RetryPolicy, {"first_wait": -1}, "first_wait of RetryPolicy does not fit"),
        (PoolLimits, {"connections": 0}, "connections of PoolLimits does not fit"),
        (PoolLimits, {"idle": "3"}, "idle of PoolLimits does not fit"),
        (ToolConfig, {"tool_error_handling": "nonsense"}, "It is one of 'continue', 'abort', 'retry'"),
        (ToolConfig, {"allowed_tools": "read_file"}, "allowed_tools of ToolConfig does not fit"),
        (load_config, {"modle": "x"}, "no setting 'modle'.*Did you mean model"),
        (load_config, {"options": 3}, "options must be a ModelOptions, not int"),
        (load_config, {"retry": {"max_atempts": 2}}, "no setting 'max_atempts'.*Did you mean max_attempts"),
        (load_config, {"tool_config": {"allowed_tools": "read"}}, "allowed_tools of ToolConfig does not fit"),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_wrong_arguments_are_refused_at_once(make: Any, wrong: dict[str, Any], says: str) -> None:
    if make is load_config:
        wrong = {"environment": {"HOME": "/nowhere"}, "directory": "/", **wrong}
    with pytest.raises(ConfigurationError, match=says) as caught:
        make(**wrong)
    assert "sk-secret" not in str(caught.value)


def test_fields_with_two_names_have_one_value(here: Surroundings) -> None:
    assert Config(tool_config=ToolConfig(max_iterations=3)).for_tools().max_iterations == 3
    assert Config(options=ModelOptions(max_tokens=3)).for_model().max_tokens == 3
    here.user("max_tokens = 99\nmax_steps = 9\nmax_parallel_tools = 3")
    config = here.load(options=ModelOptions(max_tokens=5), tool_config={"max_iterations": 2}).config
    assert (config.for_model().max_tokens, config.for_tools().max_iterations) == (5, 2)
    assert config.for_tools().max_parallel_tools == 3
    assert here.load(options=ModelOptions(max_tokens=5), max_tokens=6).config.max_tokens == 6


def test_a_wrong_base_url_is_located_but_not_shown(here: Surroundings) -> None:
    here.user('base_url = "http://me:hunter2@elsewhere.test"')
    with pytest.raises(InvalidBaseURLError, match="user name or password.*config.toml, line 1") as caught:
        here.load()
    assert "hunter2" not in str(caught.value)
    assert caught.value.reason == "userinfo"


VARIABLES = """HOME AI_PROVIDER DRAGOMAN_MODEL DRAGOMAN_BASE_URL DRAGOMAN_MAX_STEPS DRAGOMAN_OPTIONS_STOP
DRAGOMAN_OPTIONS_REASONING DRAGOMAN_TOOL_CONFIG_BUDGETS"""


@given(st.dictionaries(st.sampled_from(VARIABLES.split()), st.text()))
def test_any_environment_loads_or_raises_a_configuration_error(environ: dict[str, str]) -> None:
    environ["HOME"] = "/nowhere"
    with contextlib.suppress(ConfigurationError):
        explained = load_config(environment=environ, directory="/").explain()
        json.dumps([row.value for row in explained])
        assert str(explained)


def test_change_does_not_read_files_again(here: Surroundings) -> None:
    path = here.user("max_steps = 2\nmodel = 'anthropic:claude-opus-4-6'")
    loaded = here.load(max_tokens=5)
    path.write_text("nonsense")
    changed = loaded.change(model="openai:gpt-4o").config
    assert (changed.model_name, changed.max_steps, changed.max_tokens) == ("openai:gpt-4o", 2, 5), "read only once"


def test_a_changed_copy_hides_its_token_too() -> None:
    changed = msgspec.structs.replace(Config(), token="sk-plain-0123456789")
    assert "plain" not in repr(changed)


@pytest.mark.parametrize("text", ["max_steps = 1", "broken = ", "base_url = 'https://evil.test'"])
def test_a_project_file_of_another_user_is_ignored(
    here: Surroundings, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(here.project.parent / "dragoman.toml", "max_steps = 7")
    path = here.says(text)
    inode = path.stat().st_ino  # only root could give the file away
    monkeypatch.setattr("dragoman.chat.config_files._is_foreign", lambda status: status.st_ino == inode)
    with pytest.warns(ConfigWarning, match="belongs to another user and is ignored"):
        assert here.load().config.max_steps == 7, "the search goes on above it"
    here.trust()
    if text.startswith("max"):
        with pytest.warns(ConfigWarning, match="Others can change"):
            assert here.load().config.max_steps == 1


def test_anything_of_another_user_that_cannot_be_read_is_ignored(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = here.project / "dragoman.toml"
    path.mkdir()  # opening it fails
    inode = path.stat().st_ino
    monkeypatch.setattr("dragoman.chat.config_files._is_foreign", lambda status: status.st_ino == inode)
    with pytest.warns(ConfigWarning, match="belongs to another user and is ignored"):
        here.load()


def test_a_user_without_a_home_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nobody() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", nobody)
    (tmp_path / "dragoman.toml").write_text("max_steps = 2")
    assert load_config(environment={}, directory=tmp_path).config.max_steps == 2
    found = find_key("openai", environ={"OPENAI_API_KEY": "k"})
    assert found is not None
    assert found.secret == Secret("k")
    with pytest.raises(Exception, match="none without a home directory"):
        find_key("openai", environ={})


def test_a_deleted_working_directory(here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = here.home / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    here.user("max_steps = 2")
    assert load_config(environment=here.environ).config.max_steps == 2


def test_a_region_belongs_to_its_provider(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('model = "bedrock:us.amazon.nova-lite-v1:0"\nregion = "eu-west-1"\n')
    here = {"file": file, "environment": {}, "directory": tmp_path}
    assert load_config(**here).config.for_engine({})["region"] == "eu-west-1"
    assert load_config(**here, model="anthropic:claude-x").config.region == ""
    assert load_config(**here, region="us-east-1").config.region == "us-east-1"
    file.write_text('model = "bedrock:us.amazon.nova-lite-v1:0"\nregion = "eu-west-1"\nproject = "p"\n')
    with pytest.raises(ConfigurationError, match="bedrock has no project.*project in a configuration file"):
        new(load_config(**here).config)
    said = {"environment": {"DRAGOMAN_REGION": "eu-west-1"}, "directory": tmp_path}
    with pytest.raises(ConfigurationError, match="azure has no region.*DRAGOMAN_REGION"):
        new(load_config(**said, model="azure:gpt", base_url="https://r.openai.azure.com").config)


def test_a_function_that_generates_the_key_is_not_shown() -> None:
    loaded = load_config(environment={}, provider="openai", model="gpt-5", token=lambda: "made-key")
    assert "generated when it is needed" in str(loaded.explain())
    found = loaded.config.key({})
    assert found is not None
    assert isinstance(found.secret, Credential)
