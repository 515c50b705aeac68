"""Converts the weights of a BERT model from safetensors, as they were published, to GGUF, which llama.cpp reads.

The numbers stay as they are; only the header is different. It is built from the model's configuration and vocabulary,
which are in the same package.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias
from zipfile import ZipFile

from dragoman._decoding import decode_as

_Value: TypeAlias = bool | int | float | str | list[str] | list[int]
_CHUNK: Final = 1 << 20
_ALIGNED: Final = 32
_MEAN: Final = 1
"""The text's vector is the mean of its tokens' vectors."""
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3
_SPECIAL: Final = {
    "bos": "[CLS]",
    "eos": "[SEP]",
    "seperator": "[SEP]",  # as GGUF spells it
    "padding": "[PAD]",
    "mask": "[MASK]",
    "unknown": "[UNK]",
}

_NAMES: Final = {
    "embeddings.LayerNorm": "token_embd_norm",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.word_embeddings": "token_embd",
    "attention.output.LayerNorm": "attn_output_norm",
    "attention.output.dense": "attn_output",
    "attention.self.key": "attn_k",
    "attention.self.query": "attn_q",
    "attention.self.value": "attn_v",
    "intermediate.dense": "ffn_up",
    "output.LayerNorm": "layer_output_norm",
    "output.dense": "ffn_down",
}
"""Tensors, without the number of their layer; embeddings need no others."""


def gguf_pieces(archive: ZipFile, member: str) -> Iterator[bytes]:
    """The contents of the GGUF file, converted from this safetensors member, in chunks."""
    directory = member.rpartition("/")[0]
    config = decode_as(archive.read(f"{directory}/config.json"), dict[str, Any])
    words = archive.read(f"{directory}/vocab.txt").decode().splitlines()
    with archive.open(member) as weights:
        size = int.from_bytes(weights.read(8), "little")
        tensors = _tensors(decode_as(weights.read(size), dict[str, dict[str, Any]]))
        start, end = tensors[0][0], tensors[-1][1]
        members = {**_describe(config), **_list_tokens(words)}
        head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(members))]
        head += [_text(name) + _value(value) for name, value in members.items()]
        for at, _, name, shape in tensors:
            sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
            head.append(_text(name) + sizes + struct.pack("<IQ", 0, at - start))  # 0: 32-bit floats
        whole = b"".join(head)
        yield whole + bytes(-len(whole) % _ALIGNED)
        weights.read(start)
        left = end - start
        while left > 0 and (chunk := weights.read(min(left, _CHUNK))):
            left -= len(chunk)
            yield chunk


def _tensors(listed: Mapping[str, dict[str, Any]]) -> list[tuple[int, int, str, list[int]]]:
    """Start, end, GGUF name and shape of each tensor, in the order of the file."""
    found: list[tuple[int, int, str, list[int]]] = []
    for name, row in listed.items():
        base, _, kind = name.rpartition(".")
        layer = base.split(".", 3) if base.startswith("encoder.layer.") else []
        known = _NAMES.get(layer[3] if layer else base)
        if known is not None:
            start, end = row["data_offsets"]
            found.append((start, end, f"blk.{layer[2]}.{known}.{kind}" if layer else f"{known}.{kind}", row["shape"]))
    return sorted(found)


def _describe(config: Mapping[str, Any]) -> dict[str, _Value]:
    return {
        "general.architecture": "bert",
        "bert.block_count": config["num_hidden_layers"],
        "bert.context_length": config["max_position_embeddings"],
        "bert.embedding_length": config["hidden_size"],
        "bert.feed_forward_length": config["intermediate_size"],
        "bert.attention.head_count": config["num_attention_heads"],
        "bert.attention.layer_norm_epsilon": float(config["layer_norm_eps"]),
        "bert.attention.causal": False,
        "bert.pooling_type": _MEAN,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.token_type_count": config["type_vocab_size"],
    }


def _list_tokens(words: list[str]) -> dict[str, _Value]:
    """The vocabulary. GGUF marks the beginning of a word, BERT its continuation."""
    kinds = {word: _UNKNOWN if word == "[UNK]" else _CONTROL for word in _SPECIAL.values()}
    is_name = [word.startswith("[") and word.endswith("]") and len(word) > 2 for word in words]  # [unused7], say
    tokens = [
        word if named else word[2:] if word.startswith("##") else f"\u2581{word}"
        for word, named in zip(words, is_name, strict=True)
    ]
    ids = {f"tokenizer.ggml.{name}_token_id": words.index(word) for name, word in _SPECIAL.items()}
    types = [kinds.get(word, _NORMAL) for word in words]
    return {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, **ids}


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: _Value) -> bytes:
    """A value after the number of its type."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case list():
            texts = [_text(each) for each in value if isinstance(each, str)]
            numbers = [struct.pack("<i", each) for each in value if isinstance(each, int)]
            return struct.pack("<IIQ", 9, 8 if texts else 5, len(value)) + b"".join(texts or numbers)
