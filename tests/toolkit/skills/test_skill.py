from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dragoman.errors import ConfigurationError, SkillError, SkillNotFoundError
from dragoman.toolkit import MemorySkillStore, Skill
from dragoman.toolkit.skills.front_matter import read_front_matter
from dragoman.toolkit.skills.skill import is_safe_name, read_skill


@pytest.mark.parametrize(
    ("text", "name", "description", "body", "warning"),
    [
        ("---\nname: a\ndescription: x\n---\nbody", "a", "x", "body", None),
        ("---\nname: a\ndescription: Use when: needed\n---\nbody", "a", "Use when: needed", "body", "must be quoted"),
        ("---\nname: b\ndescription: x\n---\nbody", "b", "x", "body", "not that of the directory"),
        ("---\ndescription: x\n---\nbody", "a", "x", "body", "name is missing"),
        ("---\nname: ../x\ndescription: x\n---\nbody", "a", "x", "body", "the name of the directory is used"),
        ("---\nname:\n  a: b\ndescription: x\n---\nbody", "a", "x", "body", "name must be a text"),
        ("---\nname: a\n---\n\n# Title\n\nText", "a", "Title", "# Title\n\nText", "description is missing"),
        ("# Title\n\nText", "a", "Title", "# Title\n\nText", "first line is not '---'"),
        ("---\nname: a\ndescription: x\n\n# Title", "a", "x", "# Title", "not closed"),
        ("---\nname: a\ndescription: x", "a", "x", "", "not closed"),
        ("\ufeff---\nname: a\ndescription: x\n---\nbody", "a", "x", "body", "byte order mark"),
        ("---\r\nname: a\r\ndescription: x\r\n---\r\nbody\r\n", "a", "x", "body", None),
        ("---  \nname: a\ndescription: x\n--- \nbody", "a", "x", "body", None),
        ("---\nname: a\ndescription:\n  - x\n  - y\n---\n", "a", "x, y", "", "description must be a text"),
        ("---\nname: a\ndescription: |\n  one\n  two\n---\n", "a", "one\ntwo", "", None),
        ("", "a", "", "", "first line"),
        ("---\n---\n", "a", "", "", "name is missing"),
        ("---\nname: a\ndescription: x\n---\ntext\n---\nmore", "a", "x", "text\n---\nmore", None),
    ],
)
def test_odd_skills_are_read_with_a_warning(
    text: str, name: str, description: str, body: str, warning: str | None
) -> None:
    skill = read_skill(text, folder="a")
    assert (skill.name, skill.description, skill.body) == (name, description, body)
    if warning is None:
        assert skill.warnings == ()
    else:
        assert any(warning in each for each in skill.warnings), skill.warnings


@pytest.mark.parametrize(
    ("front", "values", "problem"),
    [
        ("a: yes\nb: 1.0\nc: ~", {"a": "yes", "b": "1.0", "c": "~"}, ""),
        ("a: b: c\nd: 'e'\nf:\n  - g", {"a": "b: c", "d": "e", "f": ["g"]}, "line 2: .*must be quoted"),
        ("a: 'open\nb: c", {"a": "open", "b": "c"}, "line .*: this is not YAML"),
        ("a: b\na: c", {"a": "b"}, "line 3: the key 'a' is there twice"),
        ("a: [&x [b], *x]", {"a": "[&x [b], *x]"}, "line 2: .*aliases are not read"),
        ("a:\n  b:\n    c: d\n  e: f", {"a": {"b": '{"c": "d"}', "e": "f"}}, ""),
        ("- a\n- b", {}, "not 'key: value'"),
        ("a: b\x00", {"a": "b\x00"}, "special characters"),
        ("a: " + "[" * 60_000, {"a": "[" * 60_000}, "line 2: this is not YAML: it has too many brackets"),
        ("a:" + " -" * 2000, {"a": " ".join("-" * 2000)}, "line 2: this is not YAML"),
        ('a: "\\U99999999"', {"a": "\\U99999999"}, "line 2: this is not YAML"),
        ("\"a\": b\n'c': d\n1: e", {"a": "b", "c": "d", "1": "e"}, ""),
        ("  a: b\n  c: d", {"a": "b", "c": "d"}, ""),
        ("a: {\nb: c,\n}\nd: e", {"a": {"b": "c"}, "d": "e"}, ""),
        ("x" * 70_000, {}, "more than 65536 characters"),
    ],
)
def test_broken_front_matter_is_read_as_far_as_possible(front: str, values: object, problem: str) -> None:
    found = read_front_matter(f"---\n{front}\n---\n")
    assert found.values == values
    assert re.search(problem, "".join(found.problems)) if problem else not found.problems


def test_other_keys_are_kept_as_text() -> None:
    skill = read_skill(
        "---\nname: a\ndescription: x\nlicense: MIT\nallowed-tools:\n  - Read\n  - Bash\n---\n", folder="a"
    )
    assert skill.more == {"license": "MIT", "allowed-tools": "Read, Bash"}


def test_without_pyyaml_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    monkeypatch.delitem(sys.modules, "dragoman.toolkit.skills.front_matter")
    with pytest.raises(ConfigurationError, match=r"dragoman\[skills\]"):
        read_skill("---\nname: a\n---\n", folder="a")


@given(st.text(max_size=300), st.text(max_size=20))
def test_any_text_can_be_read(text: str, folder: str) -> None:
    skill = read_skill(f"---\n{text}", folder=folder)
    assert len(skill.description) <= 1024
    read_front_matter(text)


@given(st.text(max_size=70))
def test_a_safe_name_is_one_part_of_a_path(name: str) -> None:
    if is_safe_name(name):
        assert Path(name).parts == (name,)
        assert name not in (".", "..", "")
        assert name.isprintable()


def test_skills_in_memory() -> None:
    store = MemorySkillStore([Skill(name="a", description="x", body="do")], {"a": {"f.md": "text", "b": b"\xff"}})
    assert [skill.name for skill in store.list()] == ["a"]
    assert not hasattr(store.list()[0], "body")
    assert store.load("a").files == ("f.md", "b")
    assert store.load_supporting("a", "f.md").text == "text"
    assert store.load_supporting("a", "b").text is None
    with pytest.raises(SkillNotFoundError, match="skill not found: b"):
        store.load("b")
    with pytest.raises(SkillError, match="supporting file not found: c"):
        store.load_supporting("a", "c")
    with pytest.raises(SkillError, match="cannot be the name"):
        MemorySkillStore([Skill(name="../a", description="x", body="do")])
    with pytest.raises(SkillError, match="two skills of the name 'A'"):
        MemorySkillStore([Skill(name=name, description="x", body="do") for name in ("a", "A")])
