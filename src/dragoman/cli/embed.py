"""`dragoman embed`: lines of texts, or whole files, to vectors; written as they come, so that nothing done is lost."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec

from dragoman.chat import load_config
from dragoman.embeddings import Embeddings, embed, full_name
from dragoman.engines import HttpEngine, as_service, engine

from .arguments import Parser, UsageError, expand_path, read_lines
from .output import show_progress
from .terminal import Terminal

_CHUNK: Final = 4096
"""Texts that are embedded, written and forgotten before the next are."""


def declare_embed(parser: Parser) -> None:
    about = "Turn texts into vectors: each line of the files, or of standard input, is a text."
    parser.describe(
        _embed,
        about,
        "dragoman embed -m openai:text-embedding-3-small questions.txt -o questions.npy",
        "dragoman embed -m voyage:voyage-3.5 --task document --whole docs/*.md > docs.jsonl",
        "cat lines.txt | dragoman embed -m local: -o lines.jsonl --resume",
    )
    add = parser.add_argument
    add("files", nargs="*", metavar="FILE", help="the texts; - or none reads standard input")
    add("-m", "--model", required=True, help="provider:model")
    add(
        "-o", "--output", metavar="FILE", help="where they go: FILE.npy is an array for NumPy, anything else JSON lines"
    )
    add("--whole", action="store_true", help="each file is one text")
    add("--task", help="what they are for: document, query, similarity, classification, clustering …")
    add("--dimensions", type=int, metavar="N", help="the length of the vectors")
    add("--truncate", action="store_true", help="cut a text that is too long, where the provider can")
    add("--concurrency", type=int, default=4, metavar="N", help="requests at once (4)")
    add("--resume", action="store_true", help="go on behind the lines that the output has already")
    add("--base-url", metavar="URL", help="the address of the provider")
    add("-q", "--quiet", action="store_true", help="nothing on standard error but errors")


def _embed(arguments: argparse.Namespace, terminal: Terminal) -> int:
    terminal.quiet = arguments.quiet
    texts = read_lines(arguments.files, terminal, whole=arguments.whole)
    if not texts:
        raise UsageError("There are no texts.", hint="Name files with texts, or pipe them in.")
    as_array = bool(arguments.output) and arguments.output.endswith(".npy")
    if arguments.resume and (as_array or not arguments.output):
        raise UsageError("Only a file of JSON lines can be resumed.", hint="Say -o FILE.jsonl, or leave --resume out.")
    config = load_config(model=full_name(arguments.model), base_url=arguments.base_url).config
    with engine(config.model_name, **config.for_engine()) as made:
        service = as_service(made, HttpEngine, "embeddings")
        with _open_output(arguments, terminal) as (write, done):
            if done > len(texts):
                raise UsageError(
                    f"{arguments.output} has {done} lines, and there are {len(texts)} texts.",
                    hint="Name the same texts.",
                )
            for chunk, found in _embed_chunks(service, texts, done, arguments, terminal):
                write(chunk, found, len(texts))
    terminal.note(f"{len(texts):,} texts")
    return 0


def _embed_chunks(
    made: HttpEngine, texts: Sequence[str], done: int, arguments: argparse.Namespace, terminal: Terminal
) -> Iterator[tuple[Sequence[str], Embeddings]]:
    told: set[str] = set()
    for start in range(done, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        found = embed(
            chunk,
            model=made,
            task=arguments.task,
            dimensions=arguments.dimensions,
            truncate=arguments.truncate,
            concurrency=arguments.concurrency,
            progress=lambda now, _all, start=start: _show(terminal, start + now, len(texts)),
        )
        yield chunk, found
        for note in {str(each) for each in found.adaptations} - told:
            told.add(note)
            terminal.note(f"dragoman: {note}", "yellow")


def _show(terminal: Terminal, done: int, total: int) -> None:
    show_progress(terminal, done, total, f"{done:,} of {total:,} texts")


@contextmanager
def _open_output(
    arguments: argparse.Namespace, terminal: Terminal
) -> Generator[tuple[Callable[[Sequence[str], Embeddings, int], None], int]]:
    """What writes vectors, and how many are there already."""
    if not arguments.output:

        def print_lines(texts: Sequence[str], found: Embeddings, _all: int) -> None:
            for text, vector in zip(texts, found, strict=True):
                terminal.line(_to_json(text, vector).decode())

        yield print_lines, 0
        return
    path = expand_path(arguments.output)
    if path.suffix == ".npy":
        partial = path.with_name(f".{path.name}.partial")
        try:
            with partial.open("wb") as file:
                yield lambda _texts, found, count: _write_array(file, found, count), 0
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return
    done = _cut_last_line(path) if arguments.resume else 0
    with path.open("ab" if arguments.resume else "wb") as file:

        def write_lines(texts: Sequence[str], found: Embeddings, _all: int) -> None:
            file.writelines(_to_json(text, vector) + b"\n" for text, vector in zip(texts, found, strict=True))
            file.flush()

        yield write_lines, done


def _cut_last_line(path: Path) -> int:
    """How many whole lines a file has; what stands behind the last of them, from a run that was cut off, is removed."""
    if not path.exists():
        return 0
    count = whole = 0
    with path.open("r+b") as file:
        for line in file:
            if line.endswith(b"\n"):
                count, whole = count + 1, whole + len(line)
        file.truncate(whole)
    return count


def _to_json(text: str, vector: memoryview[float]) -> bytes:
    numbers = [float(f"{each:.9g}") for each in vector]  # nine digits tell all 32-bit floats apart
    return msgspec.json.encode({"text": text, "embedding": numbers})


def _write_array(file: BinaryIO, found: Embeddings, count: int) -> None:
    """Write vectors into a file of NumPy's format, version 1.0, behind those that are there; first of all its head."""
    if file.tell() == 0:
        kind = cast("str", found.__array_interface__["typestr"])
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({count}, {found.dimensions}), }}"
        head = f"{head:<{-(len(head) + 11) % 64 + len(head)}}\n"  # 10 bytes before it and a line end: a multiple of 64
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
    file.write(found.data)
