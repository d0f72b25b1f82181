"""The score of the classification on the project's own samples, and that the bar means something."""

import json
from pathlib import Path

import pytest

from tests import classify_score


def test_the_samples_of_the_project_reach_the_bar() -> None:
    judged = [
        classify_score.judge(entry, 1_800_000_000.0) for entry in classify_score.read(classify_score.SAMPLES)
    ]

    assert [
        (one.id, one.wanted, one.got) for one in judged if not one.right and one.id.startswith("neg")
    ] == []
    assert classify_score.passes(judged)
    assert {one.agent for one in judged} >= {
        "claude",
        "codex",
        "gemini",
        "opencode",
        "aider",
        "copilot",
        "qwen",
    }


def test_a_corpus_below_the_bar_ends_with_1_and_says_what_was_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"id": "neg-1", "agent": "claude", "stream": "stdout", "exit_code": 0, "category": "ok"}
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(json.dumps({**entry, "text": "Execution error"}) + "\n")

    assert classify_score.main([str(corpus)]) == 1
    printed = capsys.readouterr().out
    assert "wrong: neg-1 (claude): agent_crash, is ok; line: claude-execution-error" in printed
    assert "below the bar" in printed


def test_the_words_of_other_corpora_are_understood() -> None:
    entry = {"id": "iss-1", "agent": "claude", "stream": "stdout", "exit_code": None, "category": "auth"}
    judged = classify_score.judge({**entry, "text": "Invalid API key · Please run /login"}, 1_800_000_000.0)

    assert (judged.wanted, judged.right) == ("fatal", True)
