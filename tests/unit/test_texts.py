"""Texts from outside, cut and cleaned."""

from __future__ import annotations

from clockhand.domain import texts


def test_a_log_is_clean_text_within_its_limit() -> None:
    assert texts.tail("one\x00\ufffdtwo\n", 100) == "one\ufffdtwo\n"
    assert texts.tail("a" * 50 + "\n" + "b" * 20, 30) == "b" * 20
    assert texts.tail("c" * 100, 30) == "c" * 30
    assert texts.tail("é" * 100, 31) == "é" * 15
    assert len(texts.tail("\ufffd" * 100, 31).encode()) <= 31


def test_a_sentence_is_cut_at_its_end() -> None:
    assert texts.head("one\x00two", 100) == "onetwo"
    assert texts.head("é" * 100, 31) == "é" * 15
    assert texts.head("half \ud800 a pair", 100) == "half ? a pair"
