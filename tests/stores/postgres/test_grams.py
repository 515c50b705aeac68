"""Texts as numbers: a text has the grams of every part of its words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dragoman.conversation import Message, Text, Thinking, ToolResult
from dragoman.stores.postgres.grams import grams_of_text, grams_of_words
from dragoman.stores.searching import search_words, searchable_text
from tests.strategies import messages

texts = st.text(max_size=40)


@given(texts, st.integers(0, 40), st.integers(1, 10))
def test_a_part_of_a_text_is_found(text: str, start: int, length: int) -> None:
    words = search_words(text[start : start + length])
    if all(word in text.casefold() for word in words):
        assert set(grams_of_words(words)) <= set(grams_of_text(text.casefold()))


@given(texts)
def test_grams_fit_their_column(text: str) -> None:
    grams = grams_of_text(text)
    assert grams == sorted(set(grams))
    assert all(-(2**31) <= gram < 2**31 for gram in grams)


def test_grams_of_a_word_are_the_longest() -> None:
    assert len(grams_of_words(["weather"])) == 5
    assert len(grams_of_words(["we"])) == len(grams_of_words(["w"])) == 1
    assert grams_of_words([]) == grams_of_text(" \n") == []
    assert not set(grams_of_words(["ab"])) & set(grams_of_text("a b"))


def test_words_of_a_question() -> None:
    assert search_words(" The\0the  WEATHER\n") == ("the", "weather")
    assert search_words("\0 ") == search_words(" ".join(map(str, range(33)))) == ()


@given(messages)
def test_what_can_be_found_of_a_message(message: Message) -> None:
    assert message.text.casefold() in searchable_text(message)


def test_results_of_tools_can_be_found_and_thoughts_cannot() -> None:
    result = ToolResult("1", "weather", (Text("21 DEGREES"),))
    assert searchable_text(Message.tool([result])) == "21 degrees"
    assert searchable_text(Message.assistant(Thinking("hm", "anthropic"), "Fine.")) == "fine."
    assert len(searchable_text(Message.user("x" * 100_000))) == 64 * 1024
