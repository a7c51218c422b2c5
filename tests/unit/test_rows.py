"""prepare_dataset: data files as users have them, and each way in which they are wrong."""

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

import prepare_dataset
from reprolora.errors import run_script

JSONL = {
    "format": "jsonl",
    "header": False,
    "quoting": False,
    "columns": {"id": "id", "text": "text", "label": "label"},
}
CSV = {"format": "csv", "header": True, "quoting": True, "columns": {"text": "text", "label": "label"}}
TSV = {"format": "tsv", "header": False, "quoting": False, "columns": {"id": 1, "text": 3, "label": 2}}
LABELS = ["anger", "joy"]


class Run:
    """Runs prepare_dataset in this process on files that a test writes."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, output: pytest.CaptureFixture) -> None:
        self.folder, self.patch, self.output = folder, patch, output
        self.rows, self.manifest = folder / "out" / "rows.jsonl", folder / "out" / "manifest.json"

    def __call__(self, dataset: dict, **parts: bytes | Path) -> tuple[int, str]:
        files, arguments = {}, []
        for part, content in parts.items():
            path = content if isinstance(content, Path) else self.folder / part
            if isinstance(content, bytes):
                path.write_bytes(content)
            files[part] = {"source": f"file:{path}"}
            arguments.append(f"{part}={path}")
        settings = {"labels": LABELS, "files": files, **dataset}
        outputs = ["--rows", str(self.rows), "--manifest", str(self.manifest)]
        self.patch.setattr(
            "sys.argv", ["prepare_dataset", "--raw", *arguments, "--settings", json.dumps(settings), *outputs]
        )
        self.output.readouterr()
        try:
            run_script(prepare_dataset.main)
        except SystemExit as end:
            return end.code, self.output.readouterr().err
        return 0, ""

    def error(self, dataset: dict, **parts: bytes | Path) -> str:
        """The message of a user's mistake: one line, exit status 2, nothing written."""
        status, message = self(dataset, **parts)
        assert status == 2 and message.count("\n") == 1, message
        assert not self.rows.parent.exists() or not list(self.rows.parent.iterdir())
        return message.removeprefix("error: ").rstrip().replace(f"{self.folder}/", "")

    def good(self, dataset: dict, **parts: bytes | Path) -> list[list[str]]:
        """The rows as [id, text, label]."""
        status, message = self(dataset, **parts)
        assert status == 0, message
        rows = [json.loads(line) for line in self.rows.read_text(encoding="utf-8").splitlines()]
        return [[row["id"], row["text"], row["label"]] for row in rows]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    return Run(tmp_path, monkeypatch, capsys)


def jsonl(*rows: dict) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


GOOD = ({"id": 1, "text": "so glad", "label": "joy"}, {"id": 2, "text": "go away", "label": "anger"})


# Formats


def test_jsonl(run):
    assert run.good(JSONL, all=b"\n" + jsonl(*GOOD) + b"\n") == [["1", "so glad", "joy"], ["2", "go away", "anger"]]


def test_csv_with_quotes_line_ends_and_byte_order_mark(run):
    content = '\ufefftext,label,more\r\n"one, ""two""\r\nthree",joy,x\r\n\r\n caf\u00e9 ,anger,y'.encode()
    assert run.good(CSV, all=content) == [["1", 'one, "two"\r\nthree', "joy"], ["2", " caf\u00e9 ", "anger"]]


def test_quotes_are_text_where_quoting_is_off(run):
    content = b'1\tjoy\t"Yes" & she said "no\r\n2\tanger\t&amp; "\r\n'
    assert run.good(TSV, all=content) == [["1", '"Yes" & she said "no', "joy"], ["2", '&amp; "', "anger"]]


def test_parquet_with_numbers_for_labels(run, tmp_path):
    table = pyarrow.table({"text": ["so glad", "go away"], "label": [1, 0], "more": [[1], []]})
    pyarrow.parquet.write_table(table, tmp_path / "data.parquet")
    dataset = {**CSV, "format": "parquet", "label_names": {"0": "anger", "1": "joy"}}
    assert run.good(dataset, all=tmp_path / "data.parquet") == [["1", "so glad", "joy"], ["2", "go away", "anger"]]


def test_thresholds_include_their_ends(run):
    thresholds = {"up": {"at_least": 0.5}, "down": {"at_most": -0.5}, "between": {}}
    dataset = {**TSV, "labels": ["down", "between", "up"], "label_thresholds": thresholds}
    values = ["0.5", "-0.5", "0.499999", "-0.499999", "3", "-1e1"]
    content = "".join(f"{number}\t{value}\ttext\n" for number, value in enumerate(values)).encode()
    assert [row[2] for row in run.good(dataset, all=content)] == ["up", "down", "between", "between", "up", "down"]


def test_member_of_an_archive_of_the_users(run, tmp_path):
    from zipfile import ZipFile

    with ZipFile(tmp_path / "data.zip", "w") as archive:
        archive.writestr("in/data.jsonl", jsonl(*GOOD))
        archive.writestr("in/bad.jsonl", jsonl(GOOD[0], {"id": 2, "text": "", "label": "joy"}))
    files = {"all": {"source": "file:data.zip", "member": "in/data.jsonl"}}
    assert len(run.good({**JSONL, "files": files}, all=tmp_path / "data.zip")) == 2
    run.rows.unlink(), run.manifest.unlink()
    files["all"]["member"] = "in/bad.jsonl"
    assert run.error({**JSONL, "files": files}, all=tmp_path / "data.zip").startswith(
        "data.zip[in/bad.jsonl]:2: column 'text'"
    )


def test_fixed_splits_are_told_apart_and_counted(run):
    content = b"text,label\nso glad,joy\ngo away,anger\n"
    rows = run.good(CSV, test=content, train=content + b"why,anger\n")
    assert [row[0] for row in rows] == ["train-1", "train-2", "train-3", "test-1", "test-2"]
    manifest = json.loads(run.manifest.read_text())
    assert manifest["rows"] == {"train": 3, "test": 2}
    assert manifest["counts"] == {"train": {"anger": 2, "joy": 1}, "test": {"anger": 1, "joy": 1}}


def test_same_content_gives_same_bytes(run):
    run.good(JSONL, all=jsonl(*GOOD))
    first = run.rows.read_bytes(), run.manifest.read_bytes()
    run.good(JSONL, all=jsonl(*GOOD))
    assert (run.rows.read_bytes(), run.manifest.read_bytes()) == first


# Mistakes: each names the file, the line and the column


def test_missing_column(run):
    assert run.error(JSONL, all=jsonl(GOOD[0], {"id": 2, "texts": "x", "label": "joy"})).startswith(
        "all:2: no column 'text'; there are 'id', 'texts', 'label'"
    )
    assert run.error(CSV, all=b"tweet,label\nx,joy\n").startswith("all:1: no column 'text'; there are 'tweet', 'label'")
    assert "no column 3, the line has 2" in run.error(TSV, all=b"1\tjoy\n")


def test_missing_column_of_a_parquet_file(run, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"tweet": ["x"], "label": ["joy"]}), tmp_path / "p")
    assert run.error({**CSV, "format": "parquet"}, all=tmp_path / "p").startswith(
        "p: no column 'text'; there are 'tweet'"
    )


def test_name_and_position_of_a_column(run):
    assert "give its position" in run.error({**CSV, "header": False}, all=b"x,joy\n")
    assert "give the name" in run.error({**JSONL, "columns": {"text": 1, "label": 2}}, all=jsonl(*GOOD))
    assert "occurs 2 times" in run.error(CSV, all=b"text,label,text\nx,joy,y\n")


def test_unknown_label(run):
    message = run.error(JSONL, all=jsonl(GOOD[0], {"id": 2, "text": "x", "label": "angr"}))
    assert message.startswith("all:2: column 'label': unknown label 'angr', did you mean 'anger'?")
    assert "known are 'anger', 'joy'" in run.error(JSONL, all=jsonl({"id": 2, "text": "x", "label": 7}))


def test_a_label_is_not_matched_loosely(run):
    for label in ("Joy", "joy ", "joyful"):
        assert "all:1: column 'label': unknown label" in run.error(
            JSONL, all=jsonl({"id": 1, "text": "x", "label": label})
        )


@pytest.mark.parametrize("text", ["", "  \t", "\u00a0\n"])
def test_empty_text(run, text):
    message = run.error(JSONL, all=jsonl(GOOD[0], {"id": 2, "text": text, "label": "joy"}))
    assert message.startswith("all:2: column 'text': empty text")


@pytest.mark.parametrize("value", [None, 3, ["x"]])
def test_text_that_is_none(run, value):
    message = run.error(JSONL, all=jsonl({"id": 1, "text": value, "label": "joy"}))
    assert message.startswith("all:1: column 'text' holds ") and "not text" in message


def test_missing_label(run):
    assert run.error(CSV, all=b"text,label\nx,\n").startswith("all:2: column 'label': no label")
    assert run.error(JSONL, all=jsonl({"id": 1, "text": "x", "label": None})).startswith(
        "all:1: column 'label': no label"
    )


@pytest.mark.parametrize("line", [b'{"id": 1, "text": "x", "la', b"[1, 2]", b'"x"', b"text"])
def test_broken_line_of_jsonl(run, line):
    assert run.error(JSONL, all=jsonl(GOOD[0]) + line + b"\n").startswith("all:2: broken line, not ")


def test_broken_line_of_a_delimited_file(run):
    assert run.error(TSV, all=b"1\tjoy\ta\n2\tjoy\ta\tb\n").startswith("all:2: broken line, 4 fields where all:1 has 3")
    assert run.error(CSV, all=b"text,label\nx,joy\ny\n").startswith("all:3: broken line, 1 fields where all:1 has 2")
    assert "carriage return" in run.error(TSV, all=b"1\tjoy\ta\r2\tanger\tb\r")


def test_quote_that_does_not_end(run):
    """The line is where the row began, not the end of the file."""
    content = b'text,label\n"fine\nso far",joy\n"never ends,joy\nx,anger\n'
    assert run.error(CSV, all=content).startswith("all:4: broken line or quotes")


def test_duplicate_id(run):
    message = run.error(JSONL, all=jsonl(GOOD[0], GOOD[1], {**GOOD[1], "id": "1"}))
    assert message.startswith("all:3: column 'id': id '1' was used in all:1 already")


@pytest.mark.parametrize("value", [None, "", 1.5, True])
def test_id_that_is_none(run, value):
    assert run.error(JSONL, all=jsonl({**GOOD[0], "id": value})).startswith("all:1: column 'id'")


@pytest.mark.parametrize("dataset", [JSONL, CSV, TSV])
def test_wrong_encoding(run, dataset):
    first = {"jsonl": jsonl(GOOD[0]), "csv": b"text,label\n", "tsv": b"1\tjoy\tx\n"}[dataset["format"]]
    content = first + "caf\u00e9".encode("latin-1") + b"\n"
    message = run.error(dataset, all=content)
    assert message.startswith(f"all:2: not UTF-8: byte {len(first) + 3} of the file is 0xe9")


def test_utf_16(run):
    assert run.error(CSV, all="text,label\nx,joy\n".encode("utf-16")).startswith("all:1: not UTF-8: byte 0 ")


def test_half_a_surrogate_pair(run):
    assert "half of a surrogate pair" in run.error(JSONL, all=b'{"id": 1, "text": "\\ud83d", "label": "joy"}\n')


@pytest.mark.parametrize(
    ("dataset", "content"), [(JSONL, b""), (JSONL, b"\n\n"), (CSV, b""), (CSV, b"text,label\n"), (TSV, b"")]
)
def test_no_rows(run, dataset, content):
    assert run.error(dataset, all=content).startswith("all: no rows")


def test_no_rows_in_one_of_the_parts(run):
    assert run.error(JSONL, train=jsonl(*GOOD), test=b"").startswith("test: no rows")


def test_one_class_only(run):
    rows = jsonl(GOOD[0], {**GOOD[0], "id": 5})
    assert run.error(JSONL, all=rows).startswith("all: only one class, 'joy', in all 2 rows")
    assert run.error(JSONL, train=rows, test=jsonl(*GOOD)).startswith("train: only one class")


@pytest.mark.parametrize("value", ["high", "", "nan", "inf"])
def test_rating_that_is_no_number(run, value):
    dataset = {**TSV, "label_thresholds": {"joy": {"at_least": 0}, "anger": {}}}
    assert run.error(dataset, all=f"1\t1\ta\n2\t{value}\tb\n".encode()).startswith("all:2: column 2")


def test_thresholds_that_overlap_or_leave_gaps(run):
    content = b"1\t0\ta\n"
    overlapping = {"joy": {"at_least": 0}, "anger": {"at_most": 0}}
    assert "belongs to joy and anger" in run.error({**TSV, "label_thresholds": overlapping}, all=content)
    gap = {"joy": {"at_least": 1}, "anger": {"at_most": -1}}
    assert "belongs to no label" in run.error({**TSV, "label_thresholds": gap}, all=content)


def test_not_parquet(run):
    assert run.error({**CSV, "format": "parquet"}, all=b"text,label\n").startswith("all: not a readable Parquet file")


def test_null_in_a_parquet_file_is_told_by_row(run, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x", None], "label": ["joy", "joy"]}), tmp_path / "p")
    assert run.error({**CSV, "format": "parquet"}, all=tmp_path / "p").startswith("p: row 2: column 'text' holds null")


def test_checksum_of_the_users_file(run):
    files = {"all": {"source": "file:all", "sha256": "0" * 64}}
    assert "all: checksum mismatch" in run.error({**JSONL, "files": files}, all=jsonl(*GOOD))


def test_missing_file(run, tmp_path):
    assert run.error(JSONL, all=tmp_path / "absent").startswith("absent: no such file")


def test_parts_that_do_not_belong_together(run):
    assert "either `all`, or `train`, `test`" in run.error(JSONL, train=jsonl(*GOOD), validation=jsonl(*GOOD))
