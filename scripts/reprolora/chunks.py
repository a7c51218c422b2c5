"""Cutting documents into chunks, at their structure, by a tokenizer's count.

A chunk is a contiguous range of a document's text under one heading. Blocks (paragraphs, lists, code, tables) stay
whole where they fit: one that is longer than a chunk is cut between list items, lines or sentences, and only a single
sentence or line that is still too long between tokens.
"""

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer

from reprolora.corpus import Chunk, Document
from reprolora.errors import UserError

# A block that so many documents, and so large a share of them, have in common is a frame around their texts.
BOILERPLATE_DOCUMENTS, BOILERPLATE_SHARE = 3, 0.2
BATCH = 512  # blocks that are tokenized at once
SENTENCE_END = re.compile(r"(?<=[.!?])[ \t\n]+|(?<=[\u3002\uff01\uff1f])\n?")
LINE_END = re.compile(r"(?<=\n)")


@dataclass(frozen=True)
class Block:
    """A range of a document's text that is one paragraph, list, code block or table, under its headings."""

    start: int
    end: int
    kind: str
    headings: tuple[str, ...]


@dataclass
class Counts:
    """What was left out or cut on the way."""

    chunks: int = 0
    tokens: int = 0
    boilerplate_blocks: int = 0
    duplicate_chunks: int = 0
    duplicate_documents: list[str] = field(default_factory=list)
    cut_blocks: int = 0


def load_tokenizer(path: str) -> Tokenizer:
    """A model's tokenizer.json, counting tokens and nothing else."""
    try:
        tokenizer = Tokenizer.from_file(path)
    except Exception as error:  # the tokenizers library raises bare Exceptions
        raise UserError(f"{path}: no tokenizer ({error}); chunks need a model with a tokenizer.json") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def chunk_documents(documents: Sequence[Document], tokenizer: Tokenizer, max_tokens: int) -> tuple[list[Chunk], Counts]:
    """The chunks of all documents in order, each text once, without boilerplate."""
    counts = Counts()
    seen_texts: dict[str, str] = {}
    kept = []
    for document in documents:
        digest = _digest(_normalised(document.text))
        if digest in seen_texts:
            counts.duplicate_documents.append(f"{document.name} (as {seen_texts[digest]})")
        else:
            seen_texts[digest] = document.name
            kept.append(document)
    blocks = {document.name: list(find_blocks(document)) for document in kept}
    frames = _boilerplate(kept, blocks)
    seen: set[str] = set()
    chunks: list[Chunk] = []
    for document in kept:
        runs = list(_runs(document, blocks.pop(document.name), frames, counts))
        for chunk in _pack(document, runs, tokenizer, max_tokens, counts):
            digest = _digest(_normalised(chunk.text))
            if digest in seen:
                counts.duplicate_chunks += 1
                continue
            seen.add(digest)
            chunks.append(chunk)
    counts.chunks, counts.tokens = len(chunks), sum(chunk.tokens for chunk in chunks)
    return chunks, counts


# Structure


def find_blocks(document: Document) -> Iterator[Block]:
    """The blocks of a document in order; headings are no blocks, but lead to those that follow them."""
    if document.format in ("text", "pdf"):
        for match in re.finditer(r"\S.*?(?=\n[ \t]*\n|\s*\Z)", document.text, re.DOTALL):
            yield Block(match.start(), match.end(), "paragraph", ())
        return
    starts = [0, *(match.end() for match in re.finditer("\n", document.text)), len(document.text)]
    headings: list[tuple[int, str]] = []
    tokens = _parser().parse(document.text)
    for position, token in enumerate(tokens):
        if token.level or not token.map:
            continue
        start, end = (starts[line] for line in token.map)
        if token.type == "heading_open":
            level = int(token.tag[1])
            title = plain_heading(tokens[position + 1].content)
            headings = [(depth, text) for depth, text in headings if depth < level] + [(level, title)]
        elif token.type not in ("hr", "html_block"):
            text = document.text[start:end]
            start, end = start + len(text) - len(text.lstrip("\n")), start + len(text.rstrip())
            yield Block(start, end, token.type.removesuffix("_open"), tuple(text for _, text in headings if text))


def _parser():
    from markdown_it import MarkdownIt

    # What stands within a line is not looked at.
    return MarkdownIt("commonmark").enable("table").disable("inline")


def plain_heading(text: str) -> str:
    """A heading's words, code in backquotes, without links, emphasis and Sphinx's and Pandoc's marks."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\s*(?:\{#[^}]*\}|¶|#+)\s*$", "", text)
    text = re.sub(r"\*\*([^*]+)\*\*|(?<!\w)([*_]{1,2})([^*_]+)\2(?!\w)", lambda m: m[1] or m[3], text)
    return " ".join(re.sub(r"\\([\\`*_{}\[\]()#+.!~<>-])", r"\1", text).split())


def _boilerplate(documents: Sequence[Document], blocks: dict[str, list[Block]]) -> set[str]:
    """Digests of the blocks that frame texts: navigation, footers, licence lines."""
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update({_digest(_normalised(document.text[b.start : b.end])) for b in blocks[document.name]})
    least = max(BOILERPLATE_DOCUMENTS, BOILERPLATE_SHARE * len(documents))
    return {digest for digest, count in counts.items() if count >= least}


def _runs(document: Document, blocks: Iterable[Block], frames: set[str], counts: Counts) -> Iterator[list[Block]]:
    """Neighbouring blocks under the same headings, boilerplate taken out."""
    run: list[Block] = []
    for block in blocks:
        frame = _digest(_normalised(document.text[block.start : block.end])) in frames
        counts.boilerplate_blocks += frame
        if run and (frame or block.headings != run[0].headings):
            yield run
            run = []
        if not frame:
            run.append(block)
    if run:
        yield run


# Size


def _pack(
    document: Document, runs: list[list[Block]], tokenizer: Tokenizer, max_tokens: int, counts: Counts
) -> Iterator[Chunk]:
    """Chunks of as many neighbouring blocks as fit."""
    text = document.text
    sizes = _count_tokens(tokenizer, [text[b.start : b.end] for run in runs for b in run])
    position = 0
    for run in runs:
        pieces: list[tuple[int, int, int]] = []  # start, end, tokens
        for block in run:
            size = sizes[position]
            position += 1
            if size <= max_tokens:
                pieces.append((block.start, block.end, size))
            else:
                counts.cut_blocks += 1
                pieces += _cut(text, block, tokenizer, max_tokens)
        first = 0
        while first < len(pieces):
            last, total = first, pieces[first][2]
            # A token for the white space between two; whether it is really so is counted at the end.
            while last + 1 < len(pieces) and total + 1 + pieces[last + 1][2] <= max_tokens:
                last += 1
                total += 1 + pieces[last][2]
            while (tokens := _count_tokens(tokenizer, [text[pieces[first][0] : pieces[last][1]]])[0]) > max_tokens:
                last -= 1
            yield _chunk(document, run[0].headings, pieces[first][0], pieces[last][1], tokens)
            first = last + 1


def _chunk(document: Document, headings: tuple[str, ...], start: int, end: int, tokens: int) -> Chunk:
    text = document.text[start:end]
    identity = _digest("\0".join([document.name, *headings, text]))
    return Chunk(identity, document.name, headings, start, end, tokens, text)


def _cut(text: str, block: Block, tokenizer: Tokenizer, max_tokens: int) -> list[tuple[int, int, int]]:
    """A block in parts of at most `max_tokens`, cut as gently as will do."""
    prose = block.kind in ("paragraph", "blockquote")
    if block.kind in ("bullet_list", "ordered_list"):
        ways = [re.compile(r"(?<=\n)(?=[-*+] |\d+[.)] )"), re.compile(r"(?<=\n\n)"), LINE_END, SENTENCE_END]
    else:
        ways = [SENTENCE_END, LINE_END] if prose else [re.compile(r"(?<=\n\n)"), LINE_END]
    return list(_cut_range(text, block.start, block.end, ways, tokenizer, max_tokens))


def _cut_range(
    text: str, start: int, end: int, ways: list[re.Pattern], tokenizer: Tokenizer, max_tokens: int
) -> Iterator[tuple[int, int, int]]:
    piece = text[start:end]
    start, end = start + len(piece) - len(piece.lstrip("\n")), start + len(piece.rstrip())
    size = _count_tokens(tokenizer, [text[start:end]])[0]
    if size <= max_tokens:
        if start < end:
            yield start, end, size
    elif ways:
        cuts = [start, *(start + m.end() for m in ways[0].finditer(text[start:end])), end]
        for left, right in itertools.pairwise(cuts):
            yield from _cut_range(text, left, right, ways[1:], tokenizer, max_tokens)
    else:
        # Half as many tokens as there may be, since a part that stands alone can have a few more.
        encoded = tokenizer.encode(text[start:end], add_special_tokens=False)
        step = max(1, max_tokens // 2)
        cuts = sorted({start, *(start + encoded.offsets[at][0] for at in range(0, size, step)), end})
        for left, right in itertools.pairwise(cuts):
            yield left, right, _count_tokens(tokenizer, [text[left:right]])[0]


def _count_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    sizes: list[int] = []
    for start in range(0, len(texts), BATCH):
        encoded = tokenizer.encode_batch_fast(list(texts[start : start + BATCH]), add_special_tokens=False)
        sizes += [len(encoding.ids) for encoding in encoded]
    return sizes


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
