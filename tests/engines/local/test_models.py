"""Names and files of models."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from dragoman.engines.local.models import resolve_model
from dragoman.errors import LocalModelError

OFF = "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- if no %}<think>\n\n</think>{% endif %}{% endif %}"
ON = "x{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}"
TAGS = "{{ content.split('</think>')[-1] }}{% if add_generation_prompt %}<|Assistant|>{% endif %}"


def gguf(path: Path, *, template: str | None = None, context: int | None = None, version: int = 3) -> Path:
    """A file with the head of a GGUF file."""
    data = b"GGUF" + struct.pack("<IQQ", version, 0, 2)
    if context is not None:
        key = b"llama.context_length"
        data += struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, context)
    if template is not None:
        key, text = b"tokenizer.chat_template", template.encode()
        data += struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(text)) + text
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("template", "thinks"),
    [(None, "never"), ("{{ messages }}", "never"), (OFF, "maybe"), (TAGS, "maybe"), (ON, "always")],
)
def test_settings_are_read_from_the_file(tmp_path: Path, template: str | None, thinks: str) -> None:
    chosen = resolve_model(str(gguf(tmp_path / "a model.gguf", template=template, context=4096)))
    assert (chosen.context, chosen.thinks) == (4096, thinks)
    assert chosen.file == tmp_path / "a model.gguf"
    for long in (131_072, None):
        assert resolve_model(str(gguf(tmp_path / "m.gguf", context=long))).context == 8192, "more only on request"


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gguf(tmp_path / "m.GGUF")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("m.GGUF", "./m.GGUF", "~/m.GGUF", str(tmp_path / "m.GGUF")):
        assert resolve_model(name).file == tmp_path / "m.GGUF"


@pytest.mark.parametrize(
    "content", [b"", b"GG", b"PK\x03\x04 a zip", b"GGUF", b"GGUF\x01\x00\x00\x00", b"GGUF" + b"\xff" * 4]
)
def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    for path in (tmp_path / "m.gguf", tmp_path / "none.gguf", tmp_path):
        with pytest.raises(LocalModelError) as caught:
            resolve_model(str(path))
        assert caught.value.reason == "wrong_file"


def test_a_truncated_header(tmp_path: Path) -> None:
    path = gguf(tmp_path / "m.gguf", template="x" * 100)
    path.write_bytes(path.read_bytes()[:-50])
    assert resolve_model(str(path)).thinks == "never"
