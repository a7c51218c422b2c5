"""Questions without a model: what is asked about a heading, and that every answer is the section's own text."""

import pytest

from reprolora.corpus import Chunk
from reprolora.heading_questions import HeadingQuestions, ask_about, first_blocks, in_sentence, split_blocks, unwrapped
from reprolora.pairs import make_pairs, support


def chunk(text: str, *headings: str, document: str = "pumps.md", identity: str = "c1") -> Chunk:
    return Chunk(identity, document, headings, 0, len(text), 1, text)


def pairs(*chunks: Chunk, subject: str | None = "Pumpkit", rejected=()):
    generator = HeadingQuestions(chunks, subject)
    return [pair for one in chunks for pair in make_pairs(one, generator, rejected)]


@pytest.mark.parametrize(
    ("heading", "question"),
    [
        ("Install the pump", "How do I install the pump?"),
        ("Changing the oil", "How do I change the oil?"),
        ("Mapping valves", "How do I map valves?"),
        ("Running Gunicorn", "How do I run Gunicorn?"),
        ("caching decorator", "What should I know about caching decorator?"),
        ("Logging", "What should I know about Logging?"),
        ("How to stop", "How do I stop?"),
        ("What is a valve?", "What is a valve?"),
        ("`OIL_LEVEL`", "What is `OIL_LEVEL` for?"),
        ("OIL_LEVEL", "What is OIL_LEVEL for?"),
        ("`pump(oil)`", "What does `pump(oil)` do?"),
        ("Version 3.1", "What changed in version 3.1?"),
        ("About valves", "What should I know about valves?"),
        ("The valve", "What should I know about the valve?"),
        ("Why valves", "What is the answer to “Why valves”?"),
    ],
)
def test_questions(heading, question):
    assert ask_about(heading) == question


def test_headings_are_written_as_within_a_sentence():
    words = {"oil", "valve", "change", "pump"}
    assert in_sentence("2.1 Change the Oil of Your Pumps", words) == "change the oil of your pumps"
    assert in_sentence("Valve for SQLAlchemy and `Flask`", words) == "valve for SQLAlchemy and `Flask`"
    assert in_sentence("Built-in X-Frame-Oil", {"built-in", "frame"}) == "built-in X-Frame-Oil"
    assert in_sentence("Oil by Shell", words) == "oil by Shell", "a name that is written so everywhere keeps its letter"


BODY = "Drain the old oil\nfirst, then fill in two litres of the new one.\n\nRun it."


def test_a_section_is_asked_about_once_in_its_context():
    later = chunk("It goes on and on and never comes to an end here.", "Maintenance", "Change the Oil", identity="c2")
    [pair] = pairs(chunk(BODY, "Maintenance", "Change the Oil"), later)
    assert pair.instruction == "In “Maintenance” in Pumpkit, how do I change the oil?"
    assert pair.output == "Drain the old oil first, then fill in two litres of the new one.\n\nRun it."
    assert (pair.chunk, pair.document, pair.support, pair.attempt) == ("c1", "pumps.md", 1, 0)


def test_the_subject_is_not_named_twice_and_may_be_left_out():
    assert pairs(chunk(BODY, "Pumpkit oil"))[0].instruction == "What should I know about Pumpkit oil?"
    assert pairs(chunk(BODY, "Change oil"), subject=None)[0].instruction == "How do I change oil?"


def test_definitions_and_code():
    text = (
        "A check valve is a valve that lets water flow in one direction only. Clean it.\n\n"
        "To start the pump you call its start method:\n\n```python\npump.start()\n```\n\nThis is a thing."
    )
    made = {pair.instruction: pair.output for pair in pairs(chunk(text, "Valves", "Checking"))}
    assert made["In Pumpkit, what is a check valve?"] == text.partition("\n")[0]
    code = "Show the code for this (Pumpkit): To start the pump you call its start method."
    assert made[code] == "```python\npump.start()\n```"
    assert len(made) == 3 and not any("this" in question.split("?")[0].split()[-1:] for question in made)


def test_a_sentence_that_says_nothing_of_the_code_asks_for_none():
    for lead in ("Then it looks something like this:", "This is how you start the pump:", "Start it:"):
        assert not any(pair.instruction.startswith("Show") for pair in pairs(chunk(f"{lead}\n\n```\ngo\n```", "Run")))


def test_every_answer_is_in_its_chunk():
    text = (
        "A pump is a machine that moves water.\n\n"
        + BODY
        + "\n\n- one\n- two\n\nCall the thing that starts it:\n\n```\ngo\n```"
    )
    for pair in pairs(chunk(text, "Pumps", "Run")):
        assert " ".join(pair.output.split()) in " ".join(text.split())


def test_answers_end_with_a_whole_block_after_120_words():
    long = " ".join(["word"] * 119)
    assert first_blocks([long, "one more", "and this", "no more"]) == f"{long}\n\none more"
    assert first_blocks([long + " and this:", "```\ncode\n```", "no more"]) == f"{long} and this:\n\n```\ncode\n```"
    assert (
        first_blocks(["Eight words are enough for a short answer", "So:"])
        == "Eight words are enough for a short answer"
    )
    assert first_blocks(["Too short."]) is None
    assert first_blocks(["- only a list of eight words in one item"]) is None


def test_blocks_and_line_ends():
    text = "One\ntwo\n\n```\na\n\nb\n```\nafter\n\n- x\n  y\n- z"
    assert split_blocks(text) == ["One\ntwo", "```\na\n\nb\n```", "after", "- x\n  y\n- z"]
    assert unwrapped("- x\n  y\n- z") == "- x y\n- z"
    assert unwrapped("水泵\n需要油") == "水泵需要油"
    assert unwrapped("```\na\n  b\n```") == "```\na\n  b\n```"


def test_other_languages():
    text = "水泵每运转一百小时需要更换一次润滑油。"
    [pair] = pairs(chunk(text, "维护", "更换机油"), subject=None)
    assert pair.instruction == "在“维护”中\uff0c请介绍“更换机油”的内容。" and pair.output == text
    text = "Насосам нужно масло, иначе они быстро изнашиваются и перестают работать как следует."
    [pair] = pairs(chunk(text, "Насосы", "Масло"))
    assert pair.instruction == "Насосы: Масло"


def test_a_rejected_pair_is_dropped_since_it_would_come_again():
    [pair] = pairs(chunk(BODY, "Change oil"))
    [again] = pairs(chunk(BODY, "Change oil"), rejected={pair.id})
    assert again.rejected and again.id == pair.id


def test_another_document_changes_no_pair():
    first = [chunk(BODY, "Maintenance", "Change the Oil"), chunk(BODY + " Twice.", "Pumps", identity="c2")]
    other = chunk(BODY + " The Oil Maintenance change.", "Other Oil", document="other.md", identity="c3")
    assert pairs(*first) == [pair for pair in pairs(other, *first) if pair.document == "pumps.md"]


@pytest.mark.parametrize(
    ("answer", "source", "share"),
    [
        ("The pump needs oil", "A pump needs much oil.", 1.0),
        ("The pumps needed water 42", "pump needed 41", 0.25),  # of pumps, needed, water and 42 only one
        ("Yes.", "anything", 1.0),
        ("润滑油很好", "需要润滑油", 0.5),  # 润滑 滑油 油很 很好
        ("paris london", "berlin", 0.0),
    ],
)
def test_support(answer, source, share):
    assert support(answer, source) == share
