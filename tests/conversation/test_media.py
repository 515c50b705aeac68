from __future__ import annotations

import pytest

from dragoman.conversation import Media


@pytest.mark.parametrize(
    ("path", "kind", "mime_type"),
    [
        ("a/b.PNG", "image", "image/png"),
        ("b.pdf", "document", "application/pdf"),
        ("c.wav", "audio", "audio/wav"),
        ("d.mp4", "video", "video/mp4"),
        ("e.csv", "document", "text/csv"),
    ],
)
def test_the_kind_is_known_from_the_name(path: str, kind: str, mime_type: str) -> None:
    media = Media.from_path(path)
    assert (media.kind, media.mime_type, media.path, media.name) == (kind, mime_type, path, path.rpartition("/")[2])


def test_nothing_is_opened_or_fetched() -> None:
    assert Media.from_path("does/not/exist.png").data is None
    assert Media.from_url("https://nowhere.invalid/x.jpg?y=z.pdf").mime_type == "image/jpeg"


def test_a_name_that_tells_nothing_asks_for_the_type() -> None:
    with pytest.raises(ValueError, match="mime_type"):
        Media.from_url("https://host/download")
    assert Media.from_url("https://host/download", mime_type="image/webp").kind == "image"


@pytest.mark.parametrize("sources", [{}, {"data": b"", "path": "x"}, {"path": "x", "url": "y"}])
def test_media_has_exactly_one_source(sources: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        Media(kind="image", mime_type="image/png", **sources)  # type: ignore[arg-type]
