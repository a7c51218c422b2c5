"""The review: who is drawn, what the page holds, which decisions are understood, and when the gate opens."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reprolora.decisions import Decision, read_decisions, rejected_pairs
from reprolora.errors import UserError
from reprolora.review import as_csv, as_page, draw_sample, judge, review_rows

ROOT = Path(__file__).parents[2]
TEMPLATE = (ROOT / "scripts/reprolora/templates/review.html.jinja").read_text()
NASTY = "</script><script>alert(1)</script> \u2028 مرحبا 漢字 \"quoted\" 'too', a,b;c\n=1+1"


def pair(number: int, **changes) -> dict:
    made = {
        "id": f"p{number}",
        "document": f"d{number % 4}.md",
        "chunk": f"c{number % 10}",
        "instruction": f"Q{number}?",
    }
    return made | {"output": f"A{number}", "attempt": 0, "support": 1.0, "rejected": False} | changes


PAIRS = [pair(number) for number in range(100)]
CHUNKS = {
    f"c{n}": {"id": f"c{n}", "headings": ["H", f"{n}"], "text": f"Text {n}", "start": n, "end": 9} for n in range(10)
}


def decide(sample, **verdicts) -> dict[str, Decision]:
    """Everything accepted but for the first of the sample, by number of rejects and edits."""
    ids = sample["first"]
    reject, edit = verdicts.get("reject", 0), verdicts.get("edit", 0)
    made = {identity: Decision("accept") for identity in [*ids, *sample["replacements"]]}
    made |= {identity: Decision("reject") for identity in ids[:reject]}
    return made | {identity: Decision("edit", "Better?", "Yes.") for identity in ids[reject : reject + edit]}


def test_the_sample_is_a_seeded_fifth_that_hardly_changes_when_documents_are_added():
    sample = draw_sample(PAIRS, 0.2, 1)
    assert len(sample["first"]) == 20 and sample["replacements"] == []
    assert draw_sample(PAIRS[::-1], 0.2, 1) == sample != draw_sample(PAIRS, 0.2, 2)
    assert len(draw_sample(PAIRS[:11], 0.2, 1)["first"]) == 3, "rounded up"
    more = draw_sample([*PAIRS, *(pair(n) for n in range(100, 105))], 0.2, 1)
    assert len(more["first"]) == 21 and len({*more["first"]} & {*sample["first"]}) >= 18


def test_replacements_are_all_reviewed_and_what_they_replace_stays_in_the_sample():
    first = draw_sample(PAIRS, 0.2, 1)["first"]
    pairs = [p | {"rejected": p["id"] == first[0]} for p in PAIRS] + [
        pair(200, attempt=1),
        pair(201, attempt=1, rejected=True),
    ]
    assert draw_sample(pairs, 0.2, 1) == {"first": first, "replacements": ["p200"]}


# The gate


def test_the_pass_rate_has_wilsons_interval():
    """19 of 20: (0.95 + z2/40 -+ z sqrt(0.95 0.05/20 + z2/1600)) / (1 + z2/20) with z = 1.96 gives 0.7639 to 0.9911."""
    sample = draw_sample(PAIRS, 0.2, 1)
    outcome = judge(PAIRS, sample, decide(sample, reject=1) | {"gone": Decision("accept")}, 0.95, "page")
    assert (outcome["pass_rate"], outcome["accepted"], outcome["rejected"], outcome["edited"]) == (0.95, 19, 1, 0)
    assert outcome["pass_rate_low"] == pytest.approx(0.7639, abs=1e-4)
    assert outcome["pass_rate_high"] == pytest.approx(0.9911, abs=1e-4)
    assert outcome["stale_decisions"] == 1


def test_below_the_pass_rate_the_documents_of_the_failed_pairs_are_named():
    sample = draw_sample(PAIRS, 0.2, 1)
    documents = {p["id"]: p["document"] for p in PAIRS}
    failed = [documents[identity] for identity in sample["first"][:3]]
    with pytest.raises(UserError, match=r"17 of 20 pairs \(85\.0%, 95 % interval 64\.0% to 94\.8%\) passed") as error:
        judge(PAIRS, sample, decide(sample, reject=2, edit=1), 0.95, "page")
    for name in failed:
        assert f"{name} ({failed.count(name)})" in str(error.value)
    assert "documents.exclude" in str(error.value)


def test_an_undecided_pair_keeps_the_gate_shut():
    sample = draw_sample(PAIRS, 0.2, 1)
    decisions = decide(sample)
    del decisions[sample["first"][3]]
    with pytest.raises(UserError, match=r"1 of the 20 pairs to review are undecided; open review/index\.html"):
        judge(PAIRS, sample, decisions, 0.95, "review/index.html")


def test_a_replacement_is_reviewed_but_mends_no_pass_rate():
    sample = draw_sample(PAIRS, 0.2, 1) | {"replacements": ["p200"]}
    pairs = [*PAIRS, pair(200, attempt=1)]
    with pytest.raises(UserError, match=r"90\.0%.*1 replacements wait on page"):
        judge(pairs, sample, decide(sample, reject=2), 0.95, "page")
    assert judge(pairs, sample, decide(sample, reject=2), 0.9, "page")["replacements"] == 1
    undecided = decide(sample, reject=1)
    del undecided["p200"]
    with pytest.raises(UserError, match="1 of the 21 pairs to review are undecided"):
        judge(pairs, sample, undecided, 0.95, "page")


# Decisions


def test_decisions_from_the_page_and_from_spreadsheets(tmp_path):
    expected = {"p1": Decision("accept"), "p2": Decision("reject"), "p3": Decision("edit", "Q,\n;?", '"A"')}
    rows = [
        {"id": "p1", "decision": "accept", "edited_instruction": "", "edited_output": ""},
        {"id": "p2", "decision": "reject"},
        {"id": "p3", "decision": "edit", "edited_instruction": "Q,\n;?", "edited_output": '"A"'},
    ]
    file = tmp_path / "decisions"
    file.write_text(json.dumps({"dataset": "x", "decisions": rows}))
    assert read_decisions(file) == expected and rejected_pairs(file) == {"p2"}
    for delimiter in ",;\t":
        lines = [
            "id,decision,edited_instruction,edited_output",
            "p1, A,,",
            "p2,Reject,,",
            'p3,e,"Q,\n;?","""A"""',
            "p4,,,",
        ]
        text = "\r\n".join(line if line.startswith("p3") else line.replace(",", delimiter) for line in lines)
        text = text.replace('p3,e,"Q,\n;?",', f'p3{delimiter}e{delimiter}"Q,\n;?"{delimiter}')
        file.write_text("\ufeff" + text, encoding="utf-8", newline="")
        assert read_decisions(file) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,decision\np1,maybe\n", "row 2: decision 'maybe' is none of accept, reject and edit"),
        ("id,decision\np1,accept\np1,reject\n", "row 3: id p1 is decided twice"),
        ("id,decision,edited_instruction,edited_output\np1,edit,Q,\n", "row 2: an edit without"),
        ("name,verdict\np1,accept\n", "no columns id and decision"),
        ("id,decision\n,accept\n", "row 2: no id"),
        ('{"decisions": [1]}', "not a list of decisions"),
        ('{"decisions": [{"id": "p1", ', "not what the review page exports"),
    ],
)
def test_decisions_that_cannot_be_understood_are_named(tmp_path, text, message):
    (tmp_path / "d").write_text(text)
    with pytest.raises(UserError, match=f"{re.escape(str(tmp_path / 'd'))}: .*{re.escape(message)}"):
        read_decisions(tmp_path / "d")


def test_no_file_means_no_decisions(tmp_path):
    assert read_decisions(None) == read_decisions(tmp_path / "none") == {}


# Page and spreadsheet


def rows(decisions=None) -> list[dict]:
    pairs = [pair(0, instruction=NASTY), pair(1, output=NASTY)]
    chunks = CHUNKS | {"c1": CHUNKS["c1"] | {"text": NASTY}}
    return review_rows({"first": ["p1", "p0"], "replacements": []}, pairs, chunks, decisions or {})


def test_the_spreadsheet_comes_back_as_it_went(tmp_path):
    decisions = {"p0": Decision("edit", NASTY, "A"), "p1": Decision("accept")}
    file = tmp_path / "sample.csv"
    file.write_text(as_csv(rows(decisions)), encoding="utf-8", newline="")
    assert read_decisions(file) == decisions


def test_the_page_stands_alone_and_holds_the_data_as_data():
    page = as_page(TEMPLATE, "my docs", rows(), ["p1"])
    assert not re.search(r"""(src|href)=|https?:|@import|url\(""", page)
    assert page.count("<script") == 2, "no text of a document ends the data or starts a script"
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])
    assert data["rows"] == rows() and data["flagged"] == ["p1"] and data["name"] == "my docs"


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
PLAY = """
<script>
const key = (name, options = {}) => document.dispatchEvent(new KeyboardEvent("keydown", {key: name, ...options}));
const seen = [$("chunk").textContent, $("output").textContent, $("flag").hidden];
key("a"); key("e");
$("edited_output").value = "Mended";
key("r"); key("Enter", {ctrlKey: true});
const saved = JSON.parse(localStorage.getItem(storage));
key("ArrowLeft");
const shown = [at, $("counts").textContent, $("output").textContent];
document.title = "x";
document.body.textContent = JSON.stringify({seen, saved, shown, json: JSON.parse(asJson()), csv: asCsv()});
</script>
"""


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium to open the page in")
def test_keys_decide_and_the_exports_are_what_the_gate_reads(tmp_path):
    page = as_page(TEMPLATE, "docs", rows(), ["p1"]).replace("</html>", PLAY + "</html>")
    (tmp_path / "page.html").write_text(page)
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [*command, "--dump-dom", f"file://{tmp_path / 'page.html'}"], capture_output=True, text=True, timeout=120
    )
    body = re.search(r"<body>(\{.*\})", done.stdout, re.DOTALL)[1].partition("</body>")[0]
    result = json.loads(body.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert result["seen"] == [NASTY, NASTY, False]
    assert result["saved"]["p1"]["decision"] == "accept" and result["saved"]["p0"]["edited_output"] == "Mended"
    assert result["shown"][1:] == ["2 of 2 decided: 1 accepted, 0 rejected, 1 edited", NASTY]
    expected = {"p1": Decision("accept"), "p0": Decision("edit", NASTY, "Mended")}
    for name, text in (("d.json", json.dumps(result["json"])), ("d.csv", result["csv"])):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        assert read_decisions(tmp_path / name) == expected


# The scripts


def run_check(tmp_path: Path, pairs: list[dict], review: dict, decisions: Path | None = None, **settings):
    files = {"pairs.jsonl": pairs, "chunks.jsonl": list(CHUNKS.values())}
    for name, content in files.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in content))
    (tmp_path / "sample.json").write_text(json.dumps(draw_sample(pairs, 0.2, 1)))
    (tmp_path / "documents.json").write_text('{"documents": 4}')
    settings = {
        "review": {"skip": False, "pass_rate": 0.95} | review,
        "minimum_support": 0.5,
        "unsupported": "drop",
    } | settings
    command = [sys.executable, str(ROOT / "scripts/check_review.py"), "--settings", json.dumps(settings)]
    for option, name in (("pairs", "pairs.jsonl"), ("chunks", "chunks.jsonl"), ("sample", "sample.json")):
        command += [f"--{option}", str(tmp_path / name)]
    command += ["--summaries", str(tmp_path / "documents.json")] + ([f"--decisions={decisions}"] if decisions else [])
    command += ["--rows", str(tmp_path / "rows.jsonl"), "--manifest", str(tmp_path / "manifest.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done, None, None
    rows = {row["id"]: row for row in map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())}
    return done, rows, json.loads((tmp_path / "manifest.json").read_text())


def test_a_skipped_review_is_recorded_and_said(tmp_path):
    pairs = [*PAIRS, pair(100, support=0.2)]
    done, rows, manifest = run_check(tmp_path, pairs, {"skip": True})
    assert done.returncode == 0 and "the review is skipped, as review.skip says" in done.stderr
    assert manifest["review"] == {"skipped": True} and manifest["documents"] == {"documents": 4}
    assert manifest["rows"] == {"all": 100} and manifest["unsupported"] == {"flagged": 1, "dropped": 1}
    assert rows["p7"] == {
        "id": "p7",
        "instruction": "Q7?",
        "input": "",
        "output": "A7",
        "source": "d3.md:7-9",
        "document": "d3.md",
        "chunk": "c7",
        "part": "all",
    }
    _, rows, manifest = run_check(tmp_path, pairs, {"skip": True}, unsupported="keep")
    assert "p100" in rows and manifest["unsupported"] == {"flagged": 1, "dropped": 0}


def test_decisions_shape_the_rows(tmp_path):
    """Of 20 reviewed one is edited; a pair that was rejected is gone; an unsupported one that was accepted stays."""
    first = draw_sample(PAIRS, 0.2, 1)["first"]
    pairs = [p | {"support": 0.1 if p["id"] == first[1] else 1.0} for p in PAIRS] + [
        pair(300, attempt=1, rejected=True)
    ]
    decisions = [{"id": identity, "decision": "accept"} for identity in first[1:]]
    decisions += [{"id": first[0], "decision": "edit", "edited_instruction": "Better?", "edited_output": "Yes."}]
    file = tmp_path / "my decisions.json"
    file.write_text(json.dumps({"decisions": decisions}))
    done, rows, manifest = run_check(tmp_path, pairs, {}, file)
    assert done.returncode == 0, done.stderr
    assert len(rows) == 100 and "p300" not in rows and first[1] in rows
    assert (rows[first[0]]["instruction"], rows[first[0]]["output"]) == ("Better?", "Yes.")
    assert manifest["review"]["pass_rate"] == 0.95 and manifest["review"]["edited"] == 1


def test_without_decisions_the_gate_says_where_to_go(tmp_path):
    done, _, _ = run_check(tmp_path, PAIRS, {}, tmp_path / "nothing.json")
    assert done.returncode == 2 and done.stderr.startswith("error: 20 of the 20 pairs to review are undecided")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "rows.jsonl").exists()
