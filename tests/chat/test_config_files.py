"""What is wrong with a file is told with its line; what is unsafe about it is warned of."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from dragoman.chat import ConfigWarning
from dragoman.chat.config_files import read_toml
from dragoman.errors import ConfigFileError, ConfigurationError
from tests.chat.surroundings import Surroundings, write


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('modle = "x"', 1, "no setting 'modle'. Did you mean model?"),
        ("\n[options]\ntemprature = 1", 3, "no setting 'options.temprature'. Did you mean temperature?"),
        ("[keys.opnai]\nenv = 'X'", 1, "no provider 'opnai'. Did you mean openai?"),
        ("[keys.openai]\nenv = 'X'\nkeychian = 'a'", 3, "a key has no 'keychian'. Did you mean keychain?"),
        ("[keys.openai]\nkey = 'sk-secret-key'\norigin = 'a'", 3, "a key has no 'origin'"),
        ("[keys.openai]\nenv = ''", 2, "env is empty"),
        ("[keys.openai]\nkey = ' '", 2, "key is empty"),
        ("[profiles.p]\nmax_step = 1", 2, "no setting 'max_step'. Did you mean max_steps?"),
        ("[profiles.p]\ntrusted_projects = []", 2, "no setting 'trusted_projects'"),
        ("[ai]\nmodel = 'x'", 2, "no setting 'ai.model'"),
        ("zzz = 1", 1, "There are: "),
        ("allow_insecure_base_url = true", 1, "cannot be set in a file. Pass it as an argument."),
        ("token = 'sk-1'", 1, "cannot be set in a file. Set the provider's own variable"),
        ("max_tokens = 1\n[options]\nmax_tokens = 2", 3, "max_tokens is set twice"),
        ("[options]\ntool_choice = 'none'", 2, "Write it in [tool_config]."),
        ("provider = 'openai'\nai.provider = 'claude'", 2, "provider is set twice"),
        ("[keys.claude]\nenv = 'A'\n[keys.anthropic]\nenv = 'B'", 3, "the key of anthropic is set twice"),
        ("options = 3", 1, "options must be a table. Write [options] above its keys."),
        ("[keys]\nopenai = 'sk-secret-key'", 2, "openai must be a table"),
        ("[keys.openai]\nkey = 5", 2, "[keys.openai] does not fit: expected str - at $.key"),
        ("[keys.openai]\nhosts = 'a'", 2, "expected array, got str - at $.hosts"),
        ("trusted_projects = 'a'", 1, "trusted_projects must be a list of texts"),
        ("provider = 'a'\nmodel = ", 2, "not valid TOML"),
        ("model = 'x'\nb = [1,\n2", 3, "not valid TOML"),
        ("max_steps = 0", 1, "expected int >= 1"),
        ("options.temperature = nan", 1, "expected a number, got nan"),
        ("options.reasoning = {effort = 'huge'}", 1, "invalid enum value 'huge'"),
        ("tool_config.retry = {max_retries = -1}", 1, "expected int >= 0 - at $.max_retries"),
    ],
)
def test_errors_name_file_and_line(here: Surroundings, text: str, line: int, says: str) -> None:
    path = here.user(text)
    with pytest.raises(ConfigurationError) as caught:
        here.load()
    assert says in str(caught.value)
    assert f"{path}, line {line}" in str(caught.value)
    if isinstance(caught.value, ConfigFileError):
        assert (caught.value.path, caught.value.line) == (str(path), line)
    assert "sk-secret" not in str(caught.value)


def test_files_with_an_odd_encoding_depth_or_size(here: Surroundings) -> None:
    path = here.user("")
    path.write_bytes(b"max_steps = 1\nmodel = '\xff'")
    with pytest.raises(ConfigFileError, match="line 2: the file is not UTF-8"):
        here.load()
    path.write_bytes("\ufeffmax_steps = 4\r\nmodel = 'x'\r\n".encode())
    loaded = here.load(provider="openai")
    assert loaded.config.max_steps == 4, "a mark of Windows' editors does no harm"
    path.write_bytes(b"a = " + b"[" * 5000 + b"]" * 5000)
    with pytest.raises(ConfigFileError, match="nested too deeply|not valid TOML"):
        here.load()
    path.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigFileError, match="longer than"):
        here.load()


def test_unreadable_files(here: Surroundings, tmp_path: Path) -> None:
    here.user_file.mkdir(parents=True)
    with pytest.raises(ConfigFileError, match="config.toml cannot be read"):
        here.load()
    here.user_file.rmdir()
    os.mkfifo(here.project_file)
    with pytest.raises(ConfigFileError, match="not a regular file"):
        here.load()
    here.project_file.unlink()
    unreadable = here.user("max_steps = 1")
    unreadable.chmod(0)
    if os.geteuid() != 0:
        with pytest.raises(ConfigFileError, match="cannot be read: Permission denied"):
            here.load()
    here.project_file.symlink_to(tmp_path / "nowhere")
    unreadable.unlink()
    assert here.load().files == ()


def test_a_file_that_others_can_change_causes_a_warning(here: Surroundings) -> None:
    path = here.says("max_steps = 1")
    path.chmod(0o666)
    with pytest.warns(ConfigWarning, match="Others can change .*dragoman.toml.*chmod go-w"):
        here.load()
    path.chmod(0o644)
    here.load()
    path.chmod(0o664)
    here.load()  # the group is the user's own


def test_a_key_in_a_file_causes_a_warning(here: Surroundings) -> None:
    path = here.user("[keys.openai]\nkey = 'sk-secret-0123456789abcdef'")
    with pytest.warns(ConfigWarning, match="contains a key. A variable") as caught:
        loaded = here.load()
    assert "chmod 600" not in str(caught[0].message)
    assert "secret" not in f"{caught[0].message} {loaded} {loaded.explain()} {loaded.known} {loaded.layers[2].keys}"
    path.chmod(0o640)
    with pytest.warns(ConfigWarning, match="chmod 600"):
        here.load()


class Servers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    servers: list[str] = []
    timeout: float = 5.0


def test_tables_of_other_rooms(here: Surroundings) -> None:
    assert here.load().section("mcp", Servers) == Servers()
    here.user("[mcp]\nservers = ['a']\ntimeout = 1")
    assert here.load().section("mcp", Servers) == Servers(["a"], 1.0)
    here.user("[mcp]\nservers = ['a']\n[profiles.p.mcp]\nservers = ['b']")
    assert here.load(profile="p").section("mcp", Servers).servers == ["b"]
    here.user("[mcp]\nserver = ['a']")
    with pytest.raises(ConfigFileError, match=r"line 2: \[mcp\] does not fit.*server"):
        here.load().section("mcp", Servers)
    with pytest.raises(ConfigurationError, match="no section 'mpc'"):
        here.load().section("mpc", Servers)


def test_an_explanation_prints_and_hides_secrets(here: Surroundings) -> None:
    here.user("base_url = 'https://proxy.test/v1?key=hunter2'\nsystem_prompt = '''\n" + "long " * 100 + "'''")
    loaded = here.load(token="sk-secret-0123456789abcdef", provider="openai", headers={"x-key": "hunter2"})
    text = str(loaded.explain())
    lines = text.splitlines()
    assert len(lines) == len(loaded.explain())
    assert max(map(len, lines)) < 250
    [line] = [line for line in lines if line.startswith("base_url")]
    assert line.split() == ["base_url", '"https://proxy.test/v1?…"', f"{here.user_file},", "line", "1"]
    assert "…cdef" in text
    for shown in (text, repr(loaded), repr(loaded.config), str(loaded.known)):
        assert "secret" not in shown
    assert "hunter2" not in text + repr(loaded) + repr(loaded.config)


def test_an_incomplete_configuration_can_be_explained(here: Surroundings) -> None:
    here.user("provider = 'groq'")
    rows = {row.field: row.value for row in here.load().explain()}
    assert (rows["provider"], rows["model"]) == ('"groq"', "-")


def test_the_lines_of_a_document(tmp_path: Path) -> None:
    text = '''# a comment
a = 1  # b = 2
"b" = """
x = 1
[not.a.table]
"""

[t]  # [u]
'd' . e = [ 1, # ]
  "]", { f = 2 },
]
[[list]]
i = { j = "}", k = 1 }
[[list]]
i = 2
[t."quoted"]
l = 1'''
    assert read_toml(write(tmp_path / "a.toml", text)).lines == {
        ("a",): 2,
        ("b",): 3,
        ("t",): 8,
        ("t", "d"): 9,
        ("t", "d", "e"): 9,
        ("list",): 12,
        ("list", "i"): 13,
        ("t", "quoted"): 16,
        ("t", "quoted", "l"): 17,
    }


@given(st.binary(max_size=80) | st.text("ab=[]\"'#\n. 1", max_size=40).map(str.encode))
def test_any_bytes_are_parsed_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(content)
    try:
        file = read_toml(path)
    except ConfigFileError as error:
        assert error.path == str(path)  # noqa: PT017 -- either outcome is right
    else:
        assert file.data == tomllib.loads(content.decode("utf-8-sig").replace("\r\n", "\n"))
