"""Questions without a model: from a section's headings, its definitions, and the sentences that introduce code.

Every answer is text of the section, word for word, so that it is supported by its source; and what a document gives
depends on that document alone. The questions are English or, for Chinese headings, Chinese; other scripts get the
headings themselves.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

from reprolora.corpus import Chunk
from reprolora.pairs import Draft

LONGEST_ANSWER = 120  # words; the block that goes beyond them is the last
SHORTEST_ANSWER = 8
CHINESE = re.compile(r"[\u4e00-\u9fff]")
OTHER_SCRIPT = re.compile(r"[\u0400-\u0dff\u0e00-\u0eff\u1000-\u1fff\u3040-\u30ff\uac00-\ud7af]")
CODE = re.compile(r"`[^`]+`|[\w.]+\(.*\)|[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Verbs that headings of documentation begin with, in the imperative.
IMPERATIVES = _words("""
    access activate add adjust allow apply assign avoid back become begin bind build bundle call change check choose
    clean clear clone close combine commit compile configure connect convert copy create customize declare define
    delete deploy describe detect develop disable display download edit enable ensure execute expand export extend
    fetch find fix follow format generate get handle import improve include initialize insert inspect install
    integrate invoke iterate join keep launch learn limit link load make manage map merge migrate modify monitor
    mount move open optimize organize override parse pass perform populate prepare prevent protect provide publish
    pull push query read receive redirect reduce register reload remove rename render replace report require reset
    resolve respond restart restore restrict return reuse review rotate run save scale secure select send separate
    serve set share show sign simplify sort specify split start stop store submit switch sync test throw track train
    transform translate troubleshoot try turn understand uninstall update upgrade upload use validate verify wait
    watch work wrap write
""")
# Of these alone it is clear what they are done to: the thing that the headings above name.
ALONE = _words("configure deploy install run test uninstall update upgrade use")
# What a sentence about nothing in particular begins with.
NOT_DEFINED = _words("""
    this that these those it they there here he she we you i if when while in on at for with without by as to from
    after before because since one some many most all each every and any another other both such what which who how
    so everything nothing something anything someone note warning example default
""")
SMALL = _words("a an the your and or to in of on for with from by at as its") | IMPERATIVES
FIRST_WORDS = _words("what how when where why who which is are does do can the a an version") | IMPERATIVES
DEFINITION = re.compile(
    r"(?P<subject>(?:[Tt]he |[Aa]n? )?[^.,;:!?()]{2,50}?) (?P<verb>is|are) (?:an?|the|used|called) "
)


class HeadingQuestions:
    """Drafts for the chunks of documents; needs them all at once, since a section's first chunk is asked about it.

    Args:
        chunks: of all documents, in order.
        subject: what the documents are about, to name it in the questions; or None.
    """

    attempts = 1  # asked again, it would say the same

    def __init__(self, chunks: Sequence[Chunk], subject: str | None):
        self.subject = subject
        self._words: dict[str, set[str]] = {}
        self._first: set[str] = set()
        sections: set[tuple[str, tuple[str, ...]]] = set()
        for chunk in chunks:
            self._words.setdefault(chunk.document, set()).update(re.findall(r"\b[a-z][a-z'-]+\b", chunk.text))
            section = (chunk.document, chunk.headings)
            if chunk.headings and section not in sections:
                sections.add(section)
                self._first.add(chunk.id)

    def drafts(self, chunk: Chunk, attempt: int, rejected: Sequence[Draft], wanted: int) -> list[Draft]:
        blocks = split_blocks(chunk.text)
        drafts = list(self._section(chunk, blocks))
        if not OTHER_SCRIPT.search("".join(chunk.headings)):
            drafts += [*self._definitions(chunk, blocks), *self._code(chunk, blocks)]
        questions: set[str] = set()
        return [d for d in drafts if not (d.question in questions or questions.add(d.question))]

    def _section(self, chunk: Chunk, blocks: Sequence[str]) -> Iterator[Draft]:
        if chunk.id in self._first and (answer := first_blocks(blocks)):
            yield Draft(self._ask(chunk), answer)

    def _ask(self, chunk: Chunk) -> str:
        *_, leaf = titles = [title.strip(" .:!") for title in chunk.headings]
        if CHINESE.search("".join(titles)):
            return "".join(f"在“{title}”中\uff0c" for title in titles[:-1][:1]) + f"请介绍“{leaf}”的内容。"
        if OTHER_SCRIPT.search("".join(titles)):
            return ": ".join(dict.fromkeys([titles[0], leaf]))
        return self._in_context(titles, ask_about(in_sentence(leaf, self._words[chunk.document])))

    def _in_context(self, titles: Sequence[str], question: str) -> str:
        subject = self.subject
        topics = [title for title in titles[:-1] if title and title.casefold() not in question.casefold()]
        topic = topics[-1] if topics else None
        if subject and subject.casefold() in f"{topic} {question}".casefold():
            subject = None
        context = " in ".join(filter(None, [topic and f"“{topic}”", subject]))
        return f"In {context}, {decapitalised(question)}" if context else question

    def _definitions(self, chunk: Chunk, blocks: Sequence[str]) -> Iterator[Draft]:
        """The first sentence of a paragraph that says what something is."""
        for block in blocks:
            match = DEFINITION.match(" ".join(block.split())) if is_prose(block) else None
            if not match or CHINESE.search(block):
                continue
            subject = match["subject"]
            first, last = subject.split()[0].casefold(), subject.split()[-1].casefold()
            if first in NOT_DEFINED or last in NOT_DEFINED or len(subject.split()) > 5 or first.endswith("ly"):
                continue
            if len(block.split()) >= SHORTEST_ANSWER:
                subject = subject if subject.split()[0] not in ("The", "A", "An") else decapitalised(subject)
                question = f"What {match['verb']} {subject}?"
                yield Draft(self._in_context([], question), unwrapped(block))
                return

    def _code(self, chunk: Chunk, blocks: Sequence[str]) -> Iterator[Draft]:
        """The first code that a sentence introduces which can stand alone."""
        for lead, code in itertools.pairwise(blocks):
            if not (code.startswith("```") and is_prose(lead) and lead.rstrip().endswith(":")):
                continue
            sentence = re.split(r"(?<=[.!?])\s+", " ".join(lead.split()))[-1].rstrip(":")
            first = re.match(r"\w*", sentence)[0].casefold()
            if len(sentence.split()) < 5 or first in NOT_DEFINED - {"to", "if", "when", "in", "for", "with", "you"}:
                continue
            if len(sentence.split()) < 8 and sentence.split()[-1] in ("this", "that", "these", "following"):
                continue  # it says nothing of what the code is for
            about = self.subject or next(iter(chunk.headings), None)
            context = f" ({about})" if about and about.casefold() not in sentence.casefold() else ""
            yield Draft(f"Show the code for this{context}: {sentence}.", code)
            return


def split_blocks(text: str) -> list[str]:
    """Paragraphs and fenced code of Markdown."""
    blocks = re.findall(r"^```.*?^```[ \t]*$|(?:^(?!```)[^\n]*\S[^\n]*\n?)+", text, re.DOTALL | re.MULTILINE)
    return [block.rstrip() for block in blocks]


def is_prose(block: str) -> bool:
    return not re.match(r"```|[-*+|>#] |\d+[.)] |\|| {4}", block)


def unwrapped(block: str) -> str:
    """Without the line ends within paragraphs and list items; code and tables as they are."""
    if block.startswith(("```", "|", "    ")):
        return block
    block = re.sub(r"(?<=[\u3000-\u9fff\uff00-\uffef])\n[ \t]*(?=[\u3000-\u9fff\uff00-\uffef])", "", block)
    return re.sub(r"\n[ \t]*(?![-*+|>:] |\d+[.)] |[ \t])", " ", block)


def first_blocks(blocks: Sequence[str]) -> str | None:
    """The beginning of a section, in whole blocks; None if it says too little."""
    taken: list[str] = []
    length = 0
    for number, block in enumerate(blocks):
        if length >= LONGEST_ANSWER and not taken[-1].endswith(":"):
            break
        if block.rstrip(":").casefold() in ("see also", "note", "warning", "tip", "important") and (
            number + 1 == len(blocks) or length + len(blocks[number + 1].split()) > LONGEST_ANSWER
        ):
            break
        taken.append(unwrapped(block))
        length += len(block.split()) + len(CHINESE.findall(block))
    if taken and taken[-1].endswith(":"):
        taken.pop()  # nothing follows what it introduces
    prose = " ".join(block for block in taken if is_prose(block))
    enough = len(prose.split()) >= SHORTEST_ANSWER or len(CHINESE.findall(prose)) >= SHORTEST_ANSWER
    enough = enough or len(OTHER_SCRIPT.findall(prose)) >= 5 * SHORTEST_ANSWER
    return "\n\n".join(taken) if enough else None


def ask_about(heading: str) -> str:
    """A question that a section of this heading answers."""
    heading = re.sub(r"^[Aa]bout (?=\w)", "", heading)
    first, _, rest = heading.partition(" ")
    if heading.endswith("?"):
        return heading
    if re.fullmatch(r"[Vv]ersion \S+", heading):
        return f"What changed in {decapitalised(heading)}?"
    if CODE.fullmatch(heading):
        return f"What does {heading} do?" if heading.rstrip("`").endswith(")") else f"What is {heading} for?"
    if heading.casefold().startswith("how to "):
        return f"How do I {heading[7:]}?"
    if first.casefold() in ("how", "what", "when", "where", "why", "who", "which", "is", "are", "does", "do", "can"):
        return f"What is the answer to “{heading}”?"
    if first.casefold() in ALONE and not rest:
        return f"How do I {heading.casefold()} it?"
    if first.casefold() in IMPERATIVES and rest and not rest.startswith(("and ", "or ")):
        return f"How do I {decapitalised(heading)}?"
    # "Caching decorator" is a thing; "testing commands", "using Celery", "binding externally" are things to do.
    if (verb := of_gerund(first)) and re.search(r" |[A-Z]|(?:s|ly)$", rest):
        return f"How do I {verb} {rest}?"
    return f"What should I know about {decapitalised(heading)}?"


def of_gerund(word: str) -> str | None:
    """The verb of a gerund: `map` of `Mapping`, if it is one that headings begin with."""
    stem = word.casefold().removesuffix("ing")
    forms = (stem, stem + "e", stem[:-1]) if stem != word.casefold() else ()
    return next((form for form in forms if form in IMPERATIVES), None)


def in_sentence(heading: str, words: set[str]) -> str:
    """A heading as it is written within a sentence: words that the document has in lower case are so."""
    heading = re.sub(r"^\d+(\.\d+)*\.?\s+", "", heading)

    def lower(match: re.Match) -> str:
        word = match[0]
        ordinary = {word.lower(), word.lower().removesuffix("s"), word.lower() + "s"} & words
        return word.lower() if ordinary or word.lower() in SMALL or of_gerund(word) else word

    return re.sub(r"(?<![`\w.-])[A-Z][a-z'-]*(?![\w`(.-])", lower, heading)


def decapitalised(text: str) -> str:
    """With a small first letter, if the first word is an ordinary one."""
    first = re.match(r"[A-Z][a-z']*(?= |$)", text)
    ordinary = first and first[0].casefold() in FIRST_WORDS
    return text[0].lower() + text[1:] if ordinary else text
