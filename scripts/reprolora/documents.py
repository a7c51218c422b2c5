"""From a folder of documents to Markdown, one text for each, and a word on each file that could not be used.

Every format becomes Markdown, so that what follows knows one structure only. PDF, DOCX and HTML are converted by
MarkItDown, reStructuredText by docutils to HTML and from there in the same way; Markdown and plain text are taken as
they are. MarkItDown's converters are called by a file's suffix, without its model that guesses file types.
"""

import hashlib
import io
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from reprolora.archives import read_folder
from reprolora.corpus import Document

FORMATS = {
    ".pdf": "pdf",
    ".docx": "docx",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".rst": "rst",
    ".md": "markdown",
    ".markdown": "markdown",
    ".txt": "text",
    ".text": "text",
}
# What text that is not Unicode is usually in; among all that there are, short texts are misread.
ENCODINGS = ["cp1252", "cp1250", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256"]
ENCODINGS += ["gb18030", "big5", "cp932", "euc_jp", "cp949"]
# What frames a page of the web, and what is not text.
NO_CONTENT = ["script", "style", "noscript", "template", "svg", "nav", "header", "footer", "form", "button", "iframe"]
VERSIONS = {"versionadded": "Added", "versionchanged": "Changed", "deprecated": "Deprecated"}
# Of Sphinx's domains: directives that describe something, whose argument is its name.
DESCRIBING = re.compile(
    r"(?:(?:py|c|cpp|js|http|rst):)?(?:(?:class|static|async|abstract)?(?:method|function)|module-attribute|class|data|"
    r"attribute|property|exception|decorator|function|confval|option|cmdoption|envvar|describe|object|type|macro|"
    r"get|post|put|delete|patch)"
)


class Refused(Exception):
    """A file that cannot be used; says why, and what to do where something can be done."""


def list_files(place: Path, folder: str) -> Iterator[tuple[str, int, Any]]:
    """Path, size and opener of each file of a folder, or of a folder in an archive, in order of the paths.

    Hidden files are left out. A name that is not Unicode comes with the undecodable bytes as surrogates.
    """
    if place.is_file():
        yield from read_folder(place, folder)
        return
    files = []
    for root, folders, names in os.walk(place / folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(root, name) for name in names if not name.startswith(".")]
    for file in sorted(file for file in files if file.is_file()):
        yield file.relative_to(place / folder).as_posix(), file.stat().st_size, lambda file=file: file.open("rb")


def read_document(name: str, size: int, stream: IO[bytes], largest: int) -> Document:
    """Convert one file; `largest` is the size in bytes up to which files are read.

    Raises:
        Refused: says what is wrong with the file.
    """
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise Refused("its name is not Unicode; rename it") from None
    if size > largest:
        raise Refused(
            f"{size / 1e6:.0f} MB, more than documents.largest_mb ({largest / 1e6:.0f}); split it or raise that"
        )
    data = stream.read()
    if not data.strip():
        raise Refused("empty")
    kind = FORMATS[PurePosixPath(name).suffix.lower()]
    encoding = None
    if kind in ("pdf", "docx"):
        text = _markitdown(kind, data, largest)
    else:
        text, encoding = decode(data)
        if kind == "html":
            text = _html_to_markdown(text)
        elif kind == "rst":
            text = _rst_to_markdown(text)
    text = _tidy(text)
    if not text.strip():
        raise Refused("no text" + ("; if it is scanned, recognise its text first" if kind == "pdf" else ""))
    return Document(name, kind, encoding, hashlib.sha256(data).hexdigest(), text)


def decode(data: bytes) -> tuple[str, str]:
    """Text and the name of its encoding: UTF-8, UTF-16 with a byte order mark, or what the text is likely to be in.

    In a file of several encodings, the lines that are UTF-8 are read so and the others as one further encoding.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-16"), "utf-16"
        except UnicodeDecodeError:
            raise Refused("not text, though it begins like UTF-16; give it the right suffix or remove it") from None
    if b"\0" in data:
        raise Refused("not text but binary; give it the right suffix or remove it")
    try:
        return data.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        pass
    from charset_normalizer import from_bytes

    lines = data.split(b"\n")
    others = [line for line in lines if not _is_utf8(line)]
    matches = from_bytes(b"\n".join(others), cp_isolation=ENCODINGS)
    # Western and Central European text are hard to tell apart; the former is commoner.
    best = next((match for match in matches if match.encoding == "cp1252"), None) if matches else None
    best = best if best and matches.best().encoding == "cp1250" else matches.best()
    # Nearly everything passes for some encoding, so the characters have to make sense.
    if best is None or len(re.findall(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]", str(best))) > len(str(best)) / 100:
        raise Refused("text in no encoding that can be told; convert it to UTF-8")
    mixed = any(not line.isascii() for line in lines if _is_utf8(line))
    text = "\n".join(line.decode("utf-8" if _is_utf8(line) else best.encoding, "replace") for line in lines)
    return text.removeprefix("\ufeff"), f"utf-8 and {best.encoding}" if mixed else best.encoding


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _tidy(text: str) -> str:
    """Line ends as LF, no trailing spaces (but for Markdown's line break), no characters that nobody sees."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n\n").replace("\u00ad", "")
    text = re.sub(r"[\x00-\x08\x0b\x0e-\x1f\x7f\ufeff\ud800-\udfff]", "", text)
    return re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE) + "\n"


def _markitdown(kind: str, data: bytes, largest: int) -> str:
    from markitdown import StreamInfo
    from markitdown.converters import DocxConverter, PdfConverter
    from pdfminer.pdfdocument import PDFPasswordIncorrect

    if kind == "docx" and zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            # Pictures are not read, so that only the text of a document that unpacks to far more is refused.
            unpacked = sum(entry.file_size for entry in archive.infolist() if entry.filename.endswith(".xml"))
        if unpacked > 10 * largest:
            raise Refused(f"its text unpacks to {unpacked / 1e6:.0f} MB; split it or raise documents.largest_mb")
    converter = PdfConverter() if kind == "pdf" else DocxConverter()
    try:
        return converter.convert(io.BytesIO(data), StreamInfo(extension=f".{kind}")).markdown
    except Exception as error:  # the libraries below raise errors of every kind on a file that is damaged
        causes = {type(error).__name__, type(error.__cause__).__name__, *(type(a).__name__ for a in error.args)}
        if PDFPasswordIncorrect.__name__ in causes:
            raise Refused("encrypted; save it without a password") from None
        raise Refused(f"not a readable {kind.upper()} file ({type(error).__name__}); open and save it anew") from None


def _html_to_markdown(html: str) -> str:
    """The page's main part, or all of its body, without scripts and what frames it."""
    from bs4 import BeautifulSoup
    from markitdown.converters import HtmlConverter

    soup = BeautifulSoup(html, "html.parser")
    for element in soup(NO_CONTENT):
        element.extract()
    for link in soup("a"):
        link.unwrap()  # where a link leads says nothing here
    for picture in soup("img"):
        picture.extract()
    for literal in soup("span", class_="literal"):
        literal.name = "code"  # docutils writes code within a line so
    mains = soup.find_all(["main", "article"])
    content = mains[0] if len(mains) == 1 else soup.body or soup
    if soup.title and soup.title.string and not content.find("h1"):
        content.insert(0, heading := soup.new_tag("h1"))
        heading.string = soup.title.string.strip()
    options = {"escape_underscores": False, "escape_asterisks": False, "code_language_callback": _code_language}
    return HtmlConverter().convert_string(str(content), **options).markdown


def _code_language(element: Any) -> str | None:
    """The language of a `pre`, from the classes that docutils, Sphinx, Pandoc and the usual highlighters give it."""
    classes = [name for tag in (element, element.find("code")) if tag for name in tag.get("class", [])]
    named = [name for name in classes if name.startswith("language-")]
    if named:
        return named[0].removeprefix("language-")
    plain = [
        name for name in classes if name not in ("code", "literal-block", "docutils", "highlight", "doctest-block")
    ]
    return plain[0] if plain else None


# reStructuredText


def _rst_to_markdown(text: str) -> str:
    """By docutils. A role or directive that it does not know (Sphinx has hundreds) keeps its text."""
    from docutils.core import publish_parts

    _register_unknown(text)
    try:
        html = publish_parts(
            text,
            writer="html5",
            settings_overrides={
                "report_level": 5,
                "halt_level": 5,
                "file_insertion_enabled": False,
                "raw_enabled": False,
                "syntax_highlight": "none",
                "doctitle_xform": False,
                "docinfo_xform": False,
                "initial_header_level": 1,
                "smart_quotes": False,
                "_disable_config": True,
                "line_length_limit": 1_000_000,
            },
        )["body"]
    except Exception as error:  # docutils fails in many ways on what only looks like reStructuredText
        raise Refused(f"docutils cannot read it ({type(error).__name__}); mend it or save it as text") from None
    return _html_to_markdown(html)


def _register_unknown(text: str) -> None:
    """Tell docutils of the roles and directives in a text that it does not know."""
    from docutils.parsers.rst import directives, roles
    from docutils.parsers.rst.languages import en

    for name in set(re.findall(r":([a-z][\w.+:-]*):`", text)):
        if name not in en.roles and name not in roles._roles:
            roles.register_local_role(name, _role)
    for name in {name.lower() for name in re.findall(r"^\s*\.\. ([A-Za-z][\w.+:-]*)::", text, re.MULTILINE)}:
        if name not in en.directives and name not in directives._directives:
            directives.register_directive(name, _directive_class(name))


def _role(role, rawtext, text, lineno, inliner, options=None, content=None):
    """A reference's title, or its target without the path to it; names of code as code."""
    from docutils import nodes, utils

    text = utils.unescape(text)
    titled = re.fullmatch(r"(.+?)\s*<[^<>]+>", text, re.DOTALL)
    name = titled[1] if titled else text.rsplit(".", 1)[-1] if text.startswith("~") else text.lstrip("!/")
    prose = titled or role in ("doc", "ref", "term", "abbr", "numref", "issue", "pr", "ghsa", "cve")
    if role in ("doc", "ref") and not titled:
        # The target's title is in another document; its name, in words, is near it.
        name = re.sub(r"[-_]+", " ", name.removesuffix("/index").rsplit("/", 1)[-1])
    return [nodes.Text(name) if prose else nodes.literal(rawtext, name)], []


def _directive_class(name: str) -> type:
    from docutils import nodes
    from docutils.parsers.rst import Directive, directives

    class Any_(dict):
        """Every option is allowed."""

        def __missing__(self, key):
            return directives.unchanged

        def __bool__(self):
            return True

    class Kept(Directive):
        """Keeps the content; of a directive that describes something, under a heading with its name."""

        optional_arguments, final_argument_whitespace, has_content = 100, True, True
        option_spec = Any_()

        def run(self):
            if name in VERSIONS:
                version, *words = self.arguments or [""]
                text, messages = self.state.inline_text(" ".join(words), self.lineno)
                node = nodes.container()
                node += nodes.paragraph("", f"{VERSIONS[name]} in version {version}" + ": " * bool(words), *text)
                self.state.nested_parse(self.content, self.content_offset, node)
                return [node, *messages]
            if name in ("code-block", "sourcecode", "code-cell", "prompt"):
                text = "\n".join(self.content)
                return [nodes.literal_block(text, text, classes=["code", *self.arguments[:1]])]
            if not self.content or name in ("toctree", "only", "index", "glossary-index", "testsetup", "testcleanup"):
                return []
            if DESCRIBING.fullmatch(name) and self.arguments:
                title = self.arguments[0].splitlines()[0].strip()
                node = nodes.section(ids=[nodes.make_id(title) or "described"])
                node += nodes.title("", "", nodes.literal("", title))
            else:
                node = nodes.container()
                if name == "seealso":
                    node += nodes.paragraph("", "See also:")
            self.state.nested_parse(self.content, self.content_offset, node)
            return [node]

    return Kept
