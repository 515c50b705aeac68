"""What a store says is wrong with a skill: as the reference checker says, but where a reason is given."""

from __future__ import annotations

from pathlib import Path

import pytest
import skills_ref

from dragoman.toolkit import DirectorySkillStore


def made(root: Path, folder: str, text: str | bytes, file: str = "SKILL.md") -> Path:
    directory = root / folder
    directory.mkdir(parents=True, exist_ok=True)
    (directory / file).write_bytes(text if isinstance(text, bytes) else text.encode())
    return directory


def front(**values: str) -> str:
    lines = "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in values.items())
    return f"---\n{lines}---\nDo it.\n"


def named(*names: str) -> dict[str, tuple[str, str]]:
    return {name: (name, front(name=name, description="x")) for name in names}


GOOD = {
    **named("a-skill", "3d-2", "été", "a" * 64),
    "all fields": (
        "pdf",
        (
            "---\nname: pdf\ndescription: >\n  Reads\n  PDFs.\nlicense: MIT\ncompatibility: Needs git\n"
            'metadata:\n  author: me\n  version: "1.0"\nallowed-tools: Bash(git:*) Read\n---\n# PDF\n'
        ),
    ),
    "quoted": ("a", "---\nname: 'a'\ndescription: \"x: y\"\n---\n"),
    "no body": ("a", "---\nname: a\ndescription: x\n---"),
    "comments": ("a", "---\n# c\nname: a # c\ndescription: x\n---\n"),
    "longest description": ("a", front(name="a", description="x" * 1024)),
    "longest compatibility": ("a", front(name="a", description="x", compatibility="y" * 500)),
    "list of tools": ("a", "---\nname: a\ndescription: x\nallowed-tools:\n  - Read\n  - Bash\n---\n"),
    "windows lines": ("a", "---\r\nname: a\r\ndescription: x\r\n---\r\nbody\r\n"),
    "block": ("a", "---\nname: a\ndescription: |\n  one\n\n  two\n---\n"),
    "deep metadata": ("a", "---\nname: a\ndescription: x\nmetadata:\n  b:\n    c: d\n---\n"),
    "no metadata": ("a", "---\nname: a\ndescription: x\nmetadata:\n---\n"),
    "wide letters": ("abc", front(name="\uff41bc", description="x")),
}
BAD = {
    "no front matter": ("a", "# Just text\n"),
    "not closed": ("a", "---\nname: a\ndescription: x\n"),
    "empty file": ("a", ""),
    "empty front matter": ("a", "---\n---\n"),
    "no name": ("a", front(description="x")),
    "no description": ("a", front(name="a")),
    "empty name": ("a", front(name="", description="x")),
    "empty description": ("a", front(name="a", description="''")),
    "blank description": ("a", front(name="a", description="'  '")),
    **named("A", "-a", "a-", "a--b", "a_b", "a b", "a.b", "a" * 65),
    "path": ("a", front(name="../a", description="x")),
    "other directory": ("b", front(name="a", description="x")),
    "too long a description": ("a", front(name="a", description="x" * 1025)),
    "too long a compatibility": ("a", front(name="a", description="x", compatibility="y" * 501)),
    "compatibility is a list": ("a", "---\nname: a\ndescription: x\ncompatibility:\n  - y\n---\n"),
    "name is a map": ("a", "---\nname:\n  x: y\ndescription: x\n---\n"),
    "unknown key": ("a", front(name="a", description="x", version="1")),
    "colon": ("a", front(name="a", description="Use when: needed")),
    "twice": ("a", "---\nname: a\nname: a\ndescription: x\n---\n"),
    "list at the top": ("a", "---\n- name: a\n---\n"),
    "scalar at the top": ("a", "---\nhello\n---\n"),
    "alias": ("a", "---\nname: &x a\ndescription: *x\n---\n"),
    "tab": ("a", "---\nname: a\n\tdescription: x\n---\n"),
    "open quote": ("a", "---\nname: a\ndescription: 'x\n---\n"),
    "byte order mark": ("a", "\ufeff---\nname: a\ndescription: x\n---\n"),
}
DIFFERENT: dict[str, tuple[str, bool]] = {
    # The reference ends the front matter at any three dashes, and reads the rest of their line as a part of it; we end
    # it at a line that is dashes only.
    "dashes in a value": ("---\nname: a\ncompatibility: x --- y\ndescription: z\n---\n", True),
    "dashes on the first line": ("---name: a\ndescription: x\n---\n", False),
    "closing dashes with text": ("---\nname: a\ndescription: x\n--- y\n", False),
    # The reference refuses some of YAML that is harmless.
    "tag": ("---\nname: !!str a\ndescription: x\n---\n", True),
    "brackets": ("---\nname: a\ndescription: x\nallowed-tools: [Read]\n---\n", True),
}


CASES = {
    **{case: (*skill, True, True) for case, skill in GOOD.items()},
    **{case: (*skill, False, False) for case, skill in BAD.items()},
    **{case: ("a", text, good, not good) for case, (text, good) in DIFFERENT.items()},
}


def problems(directory: Path) -> tuple[str, ...]:
    return DirectorySkillStore([directory]).problems


@pytest.mark.parametrize("case", CASES)
def test_problems_agree_with_the_reference_checker(case: str, tmp_path: Path) -> None:
    folder, text, ours, theirs = CASES[case]
    directory = made(tmp_path, folder, text)
    assert (skills_ref.validate(directory) == []) is theirs
    assert (problems(directory) == ()) is (problems(tmp_path) == ()) is ours


def test_other_encodings_and_the_lower_case_file_name(tmp_path: Path) -> None:
    latin = made(tmp_path, "latin", b"---\nname: latin\ndescription: \xe9\n---\n")
    assert problems(latin) == ("latin: it is not UTF-8",)
    assert problems(made(tmp_path, "a", front(name="a", description="x"), "skill.md")) == ()
