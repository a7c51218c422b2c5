"""Documents of every format, and the files that cannot be used: refused by name while the rest goes on."""

import io
import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from reprolora.archives import read_folder
from reprolora.documents import Refused, decode, list_files, read_document
from reprolora.errors import UserError

ROOT = Path(__file__).parents[2]
LARGEST = 1_000_000


def convert(name: str, data: bytes, largest: int = LARGEST):
    return read_document(name, len(data), io.BytesIO(data), largest)


def pdf(text: str | None, password: bool = False) -> bytes:
    """A PDF of one page, written by hand; one with a password has an encryption dictionary that no password opens."""
    stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode() if text else b""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        b"<< /Filter /Standard /V 1 /R 2 /Length 40 /P -4 /O <%b> /U <%b> >>" % (b"11" * 32, b"22" * 32),
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    encrypt = b"/Encrypt 6 0 R /ID [<00><00>] " if password else b""
    return out + b"trailer\n<< /Size %d /Root 1 0 R %b>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, encrypt, start)


def docx(*paragraphs: tuple[str, str], **entries: bytes) -> bytes:
    """A DOCX of (style, text) paragraphs."""
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{said}</w:t></w:r></w:p>'
        for style, said in paragraphs
    )
    styles = f'<w:styles xmlns:w="{word}">' + "".join(
        f'<w:style w:type="paragraph" w:styleId="Heading{n}"><w:name w:val="heading {n}"/></w:style>' for n in (1, 2)
    )
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml."
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    package = "http://schemas.openxmlformats.org/package/2006"
    files = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" '
        f'ContentType="{kind}document.main+xml"/><Override PartName="/word/styles.xml" ContentType="{kind}styles+xml"/>'
        "</Types>",
        "_rels/.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type='
        f'"{office}/officeDocument" Target="word/document.xml"/></Relationships>',
        "word/_rels/document.xml.rels": f'<Relationships xmlns="{package}/relationships"><Relationship Id="r1" Type='
        f'"{office}/styles" Target="styles.xml"/></Relationships>',
        "word/document.xml": f'<w:document xmlns:w="{word}"><w:body>{body}</w:body></w:document>',
        "word/styles.xml": styles + "</w:styles>",
    }
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (files | entries).items():
            archive.writestr(name, content)
    return made.getvalue()


# Formats


def test_pdf():
    assert "Pumps need oil" in convert("a.pdf", pdf("Pumps need oil")).text


def test_docx_keeps_its_headings():
    text = convert("a.docx", docx(("Heading1", "Pumps"), ("Heading2", "Oil"), ("Normal", "Use it."))).text
    assert text == "# Pumps\n\n## Oil\n\nUse it.\n"


def test_html_without_scripts_and_what_frames_it():
    html = """<html><head><title>Pumps</title><style>p { color: red }</style></head><body>
    <nav><a href="/">Home</a></nav><script>alert('gotcha')</script><noscript>gotcha</noscript>
    <h2>Oil</h2><p onclick="gotcha()">Use <a href="x.html">good oil</a>, not_any.</p>
    <pre><code class="language-sh">pump --oil</code></pre><footer>gotcha</footer></body></html>"""
    text = convert("a.html", html.encode()).text
    assert text == "# Pumps\n\n## Oil\n\nUse good oil, not_any.\n\n```sh\npump --oil\n```\n"


def test_markdown_and_text_are_taken_as_they_are():
    assert convert("a.md", b"# A\r\n\r\nb  \r\n").text == "# A\n\nb\n\n"
    assert convert("a.txt", b"# no heading\n").text == "# no heading\n\n"


RST = """
Pumps
=====

Use :func:`~pump.api.oil` and :ref:`the guide <guide>`, see :doc:`/deploy/index` for ``--oil``.

.. code-block:: python

    pump(oil=1)

.. unheard-of:: argument
   :option: value

   Content of it.

.. py:data:: OIL_LEVEL

   How much.

.. versionadded:: 2.0
   New :class:`oil`.

.. toctree::

   gotcha

.. raw:: html

   <p>gotcha</p>

.. include:: /etc/passwd

Rest
----
More.
"""


def test_restructuredtext_with_sphinx_roles_and_directives():
    text = convert("a.rst", RST.encode()).text
    assert text == (
        "# Pumps\n\nUse `oil` and the guide, see deploy for `--oil`.\n\n```python\npump(oil=1)\n```\n\n"
        "Content of it.\n\n## `OIL_LEVEL`\n\nHow much.\n\nAdded in version 2.0: New `oil`.\n\n## Rest\n\nMore.\n"
    )


@pytest.mark.parametrize(
    "text",
    ["المضخات تحتاج إلى زيت.", "ポンプには油が必要です。", "水泵需要油。", "Pumps e\u0301tude \U0001f6e2"],
    ids=["right to left", "Japanese", "Chinese", "combining and beyond the BMP"],
)
@pytest.mark.parametrize("suffix", ["md", "html", "rst", "txt"])
def test_every_script(text, suffix):
    assert convert(f"a.{suffix}", text.encode()).text.strip() == text


# Encodings


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        ("Öl für Pumpen".encode(), "utf-8"),
        ("Öl für Pumpen".encode("utf-8-sig"), "utf-8"),
        ("Öl für Pumpen".encode("utf-16"), "utf-16"),
    ],
)
def test_unicode(data, encoding):
    assert decode(data) == ("Öl für Pumpen", encoding)


def test_another_encoding_is_told_from_the_text():
    text = "水泵每运转一百小时需要更换一次润滑油并检查密封件是否磨损。" * 4
    assert decode(text.encode("gb18030"))[0] == text


def test_lines_of_two_encodings_are_each_read_in_their_own():
    first, second = "Übermäßig viel Öl ist für Pumpen schädlich.", "Größere Pumpen brauchen häufiger frisches Öl."
    text, encoding = decode(first.encode() + b"\nplain\n" + (second + "\n").encode("cp1252") * 5)
    assert text == first + "\nplain\n" + (second + "\n") * 5
    assert encoding.startswith("utf-8 and cp125")


# Bad input


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("locked.pdf", pdf("secret", password=True), "encrypted; save it without a password"),
        ("scan.pdf", pdf(None), "no text; if it is scanned, recognise its text first"),
        ("cut.pdf", pdf("Pumps")[:200], "not a readable PDF file"),
        ("not.pdf", b"Just text", "not a readable PDF file"),
        ("not.docx", b"Just text", "not a readable DOCX file"),
        ("bomb.docx", docx(("Normal", "x" * 11_000_000)), "its text unpacks to 11 MB"),
        ("empty.md", b"", "empty"),
        ("blank.txt", b" \n\n", "empty"),
        ("binary.txt", bytes(range(256)) * 4, "not text but binary"),
        ("scripts.html", b"<html><script>only()</script></html>", "no text"),
        ("undecodable\udcff.md", b"text", "its name is not Unicode"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(name, data, reason):
    with pytest.raises(Refused, match=reason):
        convert(name, data)


def test_a_large_file_is_refused_unread():
    class Unreadable(io.BytesIO):
        def read(self, *args):
            raise AssertionError("was read")

    with pytest.raises(Refused, match=r"200 MB, more than documents\.largest_mb \(50\)"):
        read_document("huge.txt", 200_000_000, Unreadable(), 50_000_000)


# The folder


def run(place: Path, tmp_path: Path, **settings):
    """convert_documents on a place: exit status, what it says, documents and summary."""
    settings = {"source": "file:x", "folder": "", "exclude": [], "largest_mb": 1, "sha256": None} | settings
    documents, summary = tmp_path / "documents.jsonl", tmp_path / "documents.json"
    command = [sys.executable, str(ROOT / "scripts/convert_documents.py"), "--place", str(place)]
    command += ["--settings", json.dumps(settings), "--documents", str(documents), "--summary", str(summary)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        assert not documents.exists()
        return done.returncode, done.stderr, None, None
    rows = [json.loads(line) for line in documents.read_text().splitlines()]
    return 0, done.stderr, rows, json.loads(summary.read_text())


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "my docs"
    for name, data in {
        "manual.md": b"# One",
        "sub/manual.md": b"# Two",
        'it\'s "quoted" $HOME & more.txt': b"Three",
        "bad.pdf": b"no",
        "zero.md": b"",
        "drafts/old.md": b"# Old",
        "picture.png": b"\x89PNG",
        "Makefile": b"all:",
        ".hidden/secret.md": b"# Secret",
        "large.txt": b"x" * 1_000_001,
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    return place


def test_the_rest_goes_on_and_the_counts_say_so(folder, tmp_path):
    status, said, rows, summary = run(folder, tmp_path, exclude=["drafts/*"])
    assert status == 0
    assert [row["name"] for row in rows] == ['it\'s "quoted" $HOME & more.txt', "manual.md", "sub/manual.md"]
    assert summary["documents"] == 3 and summary["formats"] == {"markdown": 2, "text": 1}
    assert summary["refused"].keys() == {"bad.pdf", "zero.md", "large.txt"}
    assert summary["excluded"] == ["drafts/old.md"]
    assert summary["other_files"] == {".png": 1, "without suffix": 1}
    for name, reason in summary["refused"].items():
        assert f"{name}: refused: {reason}" in said


def test_a_folder_without_a_usable_document_is_an_error(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/zero.md").touch()
    status, said, _, _ = run(tmp_path / "docs", tmp_path)
    assert status == 2 and "no document could be used (1 refused, 0 of other types)" in said
    status, said, _, _ = run(tmp_path / "nothing", tmp_path)
    assert status == 2 and "no such file or folder" in said


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_documents_in_an_archive_are_those_of_the_folder(folder, tmp_path, kind):
    archive = tmp_path / "docs.archive"
    if kind == "tar":
        with tarfile.open(archive, "w:gz") as made:
            made.add(folder, "release-1/docs")
            link = tarfile.TarInfo("release-1/docs/link.md")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            made.addfile(link)
    else:
        with zipfile.ZipFile(archive, "w") as made:
            for file in folder.rglob("*"):
                made.write(file, Path("release-1/docs") / file.relative_to(folder))
    from_folder, from_archive = run(folder, tmp_path), run(archive, tmp_path, folder="release-1/docs")
    assert from_archive[2] == from_folder[2]
    assert from_archive[3]["refused"] == from_folder[3]["refused"]


def test_a_folder_that_an_archive_does_not_have_is_named_with_what_is_near(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as made:
        made.writestr("flask-3/docs/index.rst", "x")
    with pytest.raises(UserError, match=r"no files in 'flask-3/doc' \(near it: flask-3/docs\)"):
        list(read_folder(tmp_path / "a.zip", "flask-3/doc"))
    with pytest.raises(UserError, match="is not a path inside an archive"):
        list(read_folder(tmp_path / "a.zip", "../x"))


def test_files_come_in_the_order_of_their_paths_whatever_the_file_system_says(folder):
    names = [name for name, _, _ in list_files(folder, "")]
    assert names == sorted(names, key=lambda name: Path(name)) and ".hidden/secret.md" not in names
