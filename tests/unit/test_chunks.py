"""Chunks: where they are cut, how long they are, and what is left out."""

import pytest

import tiny
from reprolora.chunks import chunk_documents, find_blocks, load_tokenizer, plain_heading
from reprolora.corpus import Chunk, Document, as_row, from_row
from reprolora.errors import UserError


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """A token is a byte, so that lengths can be counted by hand."""
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny.tokenizer().save_pretrained(folder)
    return load_tokenizer(str(folder / "tokenizer.json"))


def document(text: str, name: str = "a.md", kind: str = "markdown") -> Document:
    return Document(name, kind, "utf-8", "0" * 64, text)


def cut(text: str, tokenizer, max_tokens: int = 40, kind: str = "markdown") -> list[Chunk]:
    """The chunks of one document, after a check of what holds for all."""
    chunks, counts = chunk_documents([document(text, kind=kind)], tokenizer, max_tokens)
    assert counts.chunks == len(chunks)
    for chunk in chunks:
        assert text[chunk.start : chunk.end] == chunk.text
        assert chunk.tokens == len(chunk.text.encode()) <= max_tokens
        assert from_row(as_row(chunk)) == chunk
    return chunks


TEXT = """\
Before any heading.

# Pumps

One.

Two.

## Oil [link](x.html) *now*

Three.

Setext
------

# Valves

Four.
"""


def test_each_chunk_knows_the_headings_that_lead_to_it(tokenizer):
    chunks = cut(TEXT, tokenizer)
    assert [(chunk.headings, chunk.text) for chunk in chunks] == [
        ((), "Before any heading."),
        (("Pumps",), "One.\n\nTwo."),
        (("Pumps", "Oil link now"), "Three."),
        (("Valves",), "Four."),
    ]


def test_neighbouring_paragraphs_share_a_chunk_as_long_as_they_fit(tokenizer):
    text = "a" * 15 + "\n\n" + "b" * 15 + "\n\n" + "c" * 15 + "\n"
    assert [chunk.text[0] + chunk.text[-1] for chunk in cut(text, tokenizer, 33)] == ["ab", "cc"]
    assert [chunk.text[0] + chunk.text[-1] for chunk in cut(text, tokenizer, 31)] == ["aa", "bb", "cc"]
    assert len(cut(text, tokenizer, 49)) == 1


def test_code_stays_whole_where_it_fits_and_is_cut_at_lines_where_not(tokenizer):
    code = "```\nfirst = 1\n\n# no heading\nsecond = 2\n```"
    assert [chunk.text for chunk in cut("Lead text.\n\n" + code + "\n", tokenizer, 45)] == ["Lead text.", code]
    for chunk in cut(code, tokenizer, 20):
        assert set(chunk.text.splitlines()) <= set(code.splitlines())


def test_a_long_paragraph_is_cut_between_sentences(tokenizer):
    text = "This is one. Here is two! Is it three? Yes, it is four."
    assert [chunk.text for chunk in cut(text, tokenizer, 27)] == [
        "This is one. Here is two!",
        "Is it three?",
        "Yes, it is four.",
    ]


def test_a_long_list_is_cut_between_items(tokenizer):
    text = "- one item\n  goes on\n- two items\n- three\n"
    assert [chunk.text.strip() for chunk in cut(text, tokenizer, 22)] == [
        "- one item\n  goes on",
        "- two items\n- three",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "".join(map(str, range(60))),
        "".join(map(chr, range(0x6F22, 0x6F54))),
        "".join(map(chr, range(0x1F600, 0x1F61E))),
    ],
    ids=["no spaces", "CJK", "four bytes"],
)
def test_what_has_no_structure_is_cut_all_the_same_and_loses_nothing(tokenizer, text):
    chunks = cut(text + "\n", tokenizer, 40)
    assert "".join(chunk.text for chunk in chunks) == text and len(chunks) > 1


def test_plain_text_has_paragraphs_and_no_headings(tokenizer):
    chunks = cut("# not a heading\nline two\n\n    second\n", tokenizer, 26, kind="text")
    assert [(chunk.headings, chunk.text) for chunk in chunks] == [((), "# not a heading\nline two"), ((), "second")]


def test_a_table_is_one_block(tokenizer):
    text = "| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert [block.kind for block in find_blocks(document(text))] == ["table"]


def test_duplicates_and_boilerplate_are_left_out_and_counted(tokenizer):
    frame = "Copyright of the pump company"
    documents = [document(f"# D{n}\n\nOwn text {n}.\n\nSame words.\n\n{frame}\n", f"{n}.md") for n in range(3)]
    documents += [document(f"# D9\n\nOwn text {n}.\n", f"{n}.md") for n in range(3, 5)]
    documents += [document(documents[1].text.upper().replace("\n\n", "\n\n\n"), "copy.md")]
    chunks, counts = chunk_documents(documents, tokenizer, 40)
    assert counts.duplicate_documents == ["copy.md (as 1.md)"]
    assert counts.boilerplate_blocks == 6, "two blocks are in three documents each"
    assert not any(frame in chunk.text or "Same words" in chunk.text for chunk in chunks)
    assert [chunk.text for chunk in chunks] == [f"Own text {n}." for n in range(5)]
    again = document("# Other heading\n\nOwn text 3.\n", "again.md")
    chunks, counts = chunk_documents([*documents, again], tokenizer, 40)
    assert counts.duplicate_chunks == 1 and chunks[-1].document == "4.md"


def test_a_chunk_keeps_its_id_when_something_else_changes(tokenizer):
    before = cut("# A\n\nOne.\n\n# B\n\nTwo.\n", tokenizer)
    after = cut("# New\n\nFirst.\n\n# A\n\nOne.\n\n# B\n\nTwo!\n", tokenizer)
    assert after[1].id == before[0].id and after[2].id != before[1].id


def test_headings_in_words():
    assert plain_heading("Use `flask_run` __now__ {#anchor}") == "Use `flask_run` now"
    assert plain_heading("snake_case_name \\*args ¶") == "snake_case_name *args"
    assert plain_heading("![logo](a.png) [Oil](b.md) ##") == "logo Oil"


def test_a_model_without_a_tokenizer_file_is_named(tmp_path):
    with pytest.raises(UserError, match=r"tokenizer.json: no tokenizer"):
        load_tokenizer(str(tmp_path / "tokenizer.json"))
