from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.mcp.client.lines import LineSplitter, TooLong, id_of


@given(st.lists(st.binary(max_size=40)), st.integers(1, 60))
def test_however_the_bytes_come_the_lines_are_the_same(lines: list[bytes], limit: int) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    data = b"".join(line + b"\n" for line in lines)
    whole = LineSplitter(limit).feed(data)
    splitter = LineSplitter(limit)
    bytewise = [line for index in range(len(data)) for line in splitter.feed(data[index : index + 1])]
    assert whole == bytewise
    for line, found in zip(lines, whole, strict=True):
        if len(line) <= limit:
            assert found == line
        else:
            assert isinstance(found, TooLong)
            assert found.size == len(line)
            assert line.startswith(found.head)
            assert line.endswith(found.tail)


def test_a_line_without_end_is_noticed_and_not_kept() -> None:
    splitter = LineSplitter(1_000)
    for _ in range(100):
        assert splitter.feed(b"x" * 100) == []
    assert splitter.endless
    assert sum(map(len, splitter._pieces)) <= 1_000


def test_the_id_of_a_message_that_cannot_be_read() -> None:
    first = b'{"jsonrpc":"2.0","id":7,"result":{"id":8'
    assert id_of(first, b"") == 7
    last = b'"text":"\\"id\\":5"}]},"jsonrpc":"2.0","id":"seven"}'
    assert id_of(b'{"result":{"id":8,', last) == "seven"
    assert id_of(b"", b',"id":3,"jsonrpc":"2.0"}') == 3
    for line in (b"", b"garbage", b'{"id":', b'{"method":"x","params":{"id":5}}', b'{"id":1.5,'):
        assert id_of(line, line) is None
