"""From a folder of documents to an adapter, through the workflow: what runs again after a change, the review's gate."""

import csv
import json
import os
import shutil

import pytest

from openai_server import KEY, OpenAIServer
from projects import Project, copy_project

DATASET = {
    "description": "Questions about pumps",
    "license": "CC0-1.0",
    "documents": {"source": "file:my data/docs"},
    "chunks": {"model": "tiny", "max_tokens": 200},
    "generator": {"kind": "headings", "subject": "pumps"},
    "review": {"skip": True},
}
TASK = {
    "title": "Pumps",
    "question": "Does it run?",
    "task": "instruction",
    "dataset": "manual",
    "models": ["tiny"],
    "methods": ["zero-shot", "lora"],
    "split": {"train": 0.6, "validation": 0.2, "test": 0.2},
    "prompt": {"template": "alpaca"},
    "training": {"batch_size": 4, "max_length": 512, "learning_rate": 0.0005, "precision": "fp32"},
}
# The rules in the order in which they run, from the one that reads a key first.
ORDER = [
    *("convert_documents", "chunk_documents", "generate_pairs", "check_review", "split_instructions"),
    *("inspect_instructions", "train_adapter"),
]
SPLITS = "results/pumps/splits/seed1/summary.json"
# What comes after the training, test_answer_runs.py looks at.
ADAPTER = ("results/pumps/tiny/prompts.json", "results/pumps/tiny/lora/seed1/training.json")


def after(first: str, *others: str) -> dict[str, int]:
    return dict.fromkeys([*ORDER[ORDER.index(first) :], *others], 1)


ANOTHER_MODEL = {
    "models": {"second": {"description": "d", "license": "l", "source": "file:my data/model"}},
    "instructions": {"manual": {"chunks": {"model": "second"}}},
    "experiment": {"pumps": {"models": ["second"]}},
}
NOTHING: dict[str, int] = {}
LEAVES = {
    "description": ("Other words", NOTHING),
    "license": ("MIT", NOTHING),
    "documents.source": ("file:my data", after("convert_documents")),
    "documents.member": (["sub"], after("convert_documents")),
    "documents.exclude": (["sub/*"], after("convert_documents")),
    "documents.largest_mb": (3, after("convert_documents")),
    "chunks.model": (ANOTHER_MODEL, after("chunk_documents", "fetch_model")),
    "chunks.max_tokens": (100, after("chunk_documents")),
    "generator.kind": (
        {"instructions": {"manual": {"generator": {"kind": "openai", "model": "m"}}}},
        after("generate_pairs"),
    ),
    "generator.subject": ("valves", after("generate_pairs")),
    "generator.timeout": (5, NOTHING),
    "generator.model": ("m", NOTHING),
    "minimum_support": (0.4, after("check_review")),
    "unsupported": ("keep", after("check_review")),
    "review.pass_rate": (0.9, after("check_review")),
    "review.share": (0.5, NOTHING),
    "review.seed": (2, NOTHING),
    "review.skip": (
        {"instructions": {"manual": {"review": {"skip": False, "decisions": "my data/decisions.csv"}}}},
        after("generate_pairs", "sample_for_review"),
    ),
}
# The same for keys of the experiment, with the rules that run.
OF_EXPERIMENT = {
    "split.group": ("chunk", ORDER[-3:]),
    "prompt.template": ("chat", ORDER[-2:]),
    "prompt.system": ("Be brief.", ORDER[-2:]),
    "training.learning_rate": (1e-4, ORDER[-2:]),
    "training.max_length": (400, ORDER[-2:]),
    "training.epochs": (2, ORDER[-1:]),
    "diagnosis.loss": (1.5, ORDER[-1:]),
    "diagnosis.steps": (100, ORDER[-1:]),
    "diagnosis.action": ("stop", []),
    "answers.max_new_tokens": (5, []),
}


def write_documents(project: Project, *names: str) -> None:
    for name in names:
        file = project.folder / "my data/docs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        sections = [f"## Part {n} of {name}\n\nThe part {n} of {name} is a part that needs oil.\n" for n in range(4)]
        file.write_text(f"# The pump {name}\n\n" + "\n".join(sections))


def prepare(project: Project) -> None:
    write_documents(project, "one.md", 'it\'s "two".md', "sub/one.md")
    (project.folder / "my data/docs/broken.pdf").write_bytes(b"no")
    # The Alpaca prompt needs none.
    (project.folder / "my data/model/chat_template.jinja").unlink()
    with (project.folder / "config/instructions.yaml").open("a") as stream:
        stream.write(f"\nmanual: {json.dumps(DATASET)}\n")
    (project.folder / "config/experiments/pumps.yaml").write_text(json.dumps(TASK))
    (project.folder / "config/config.yaml").write_text("experiments: [pumps]\nhardware: cpu\n")


def rows(project: Project, name: str) -> list[dict]:
    return [json.loads(line) for line in (project.folder / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def made(tmp_path_factory, snakemake) -> Project:
    """A project whose data set is made, with a model trained on it; tests leave it as they found it."""
    folder = tmp_path_factory.mktemp("documents") / "a project"
    copy_project(folder)
    project = Project(folder, snakemake)
    prepare(project)
    done = project.snakemake(*ADAPTER)
    assert done.returncode == 0, done.stderr[-5000:]
    return project


@pytest.fixture
def copy(made, tmp_path, snakemake) -> Project:
    folder = tmp_path / "a copy"
    shutil.copytree(made.folder, folder, symlinks=True)
    return Project(folder, snakemake)


def test_every_row_is_in_one_split_and_knows_its_source(made):
    data = rows(made, "results/datasets/manual/rows.jsonl")
    splits = [rows(made, f"results/pumps/splits/seed1/{name}.jsonl") for name in ("train", "validation", "test")]
    assert sorted(row["id"] for split in splits for row in split) == sorted(row["id"] for row in data)
    assert {row["document"] for row in data} == {"one.md", 'it\'s "two".md', "sub/one.md"}
    texts = {row["name"]: row["text"] for row in rows(made, "results/datasets/manual/documents.jsonl")}
    for row in data:
        start, end = map(int, row["source"].rpartition(":")[2].split("-"))
        assert row["output"] in texts[row["document"]][start:end]
    manifest = json.loads((made.folder / "results/datasets/manual/manifest.json").read_text())
    assert manifest["review"] == {"skipped": True} and "broken.pdf" in manifest["documents"]["refused"]


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_key_reruns_exactly_what_reads_it(made, leaf):
    value, expected = LEAVES[leaf]
    if not isinstance(value, dict):
        for key in reversed(leaf.split(".")):
            value = {key: value}
        value = {"instructions": {"manual": value}}
    assert made.dry_run(*ADAPTER, *made.override(value)) == expected


def test_an_adapter_is_trained_on_the_rows(made):
    arm = made.folder / "results/pumps/tiny/lora/seed1"
    training = json.loads((arm / "training.json").read_text())
    assert training["train_rows"] == len(rows(made, "results/pumps/splits/seed1/train.jsonl"))
    assert training["diagnosis"].keys() == {"findings", "causes"}
    assert "### Instruction:" in (arm / "adapter/chat_template.jinja").read_text()
    looked_at = json.loads((made.folder / "results/pumps/tiny/prompts.json").read_text())
    assert looked_at["splits"]["train"]["rows"] == training["train_rows"]
    assert looked_at["example"]["prompt"].endswith("### Response:")


@pytest.mark.parametrize("leaf", OF_EXPERIMENT)
def test_a_key_of_the_experiment_reruns_exactly_what_reads_it(made, leaf):
    value, expected = OF_EXPERIMENT[leaf]
    for key in reversed(leaf.split(".")):
        value = {key: value}
    assert made.dry_run(*ADAPTER, *made.override({"experiment": {"pumps": value}})) == dict.fromkeys(expected, 1)


def test_documents_are_told_by_content(copy):
    for file in (copy.folder / "my data/docs").rglob("*.md"):
        file.touch()
    assert copy.dry_run(*ADAPTER) == NOTHING
    file = copy.folder / "my data/docs/sub/one.md"
    file.write_text(file.read_text() + "\nMore.\n")
    os.utime(file, (0, 0))
    assert copy.dry_run(*ADAPTER) == after("convert_documents")


def test_another_document_asks_for_its_own_questions_only(copy, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer().running() as server:
        generator = {"kind": "openai", "model": "m", "base_url": server.url}
        override = copy.override({"instructions": {"manual": {"generator": generator}}})
        assert copy.snakemake(SPLITS, *override).returncode == 0
        before, chunks = server.answered, len(rows(copy, "results/datasets/manual/chunks.jsonl"))
        pairs = {row["id"] for row in rows(copy, "results/datasets/manual/pairs.jsonl")}
        assert before == chunks
        write_documents(copy, "another.md")
        assert copy.snakemake(SPLITS, *override).returncode == 0
        assert server.answered - before == len(rows(copy, "results/datasets/manual/chunks.jsonl")) - chunks == 4
        assert pairs < {row["id"] for row in rows(copy, "results/datasets/manual/pairs.jsonl")}
        asked = [body["messages"][1]["content"] for body in server.requests[before:]]
        assert all("Text from another.md" in text for text in asked)
        written = [file for file in copy.folder.rglob("*") if file.is_file() and file.stat().st_size < 1_000_000]
        assert not any(KEY.encode() in file.read_bytes() for file in written)


def test_the_gate_opens_when_the_sample_is_reviewed(copy):
    review = {"skip": False, "share": 0.5, "decisions": "my data/decisions.csv"}
    override = copy.override({"instructions": {"manual": {"review": review}}})
    done = copy.snakemake(SPLITS, *override)
    assert done.returncode == 1
    assert (
        "error: 6 of the 6 pairs to review are undecided; open results/datasets/manual/review/index.html" in done.stderr
    )
    sample, decisions = copy.folder / "results/datasets/manual/review/sample.csv", copy.folder / "my data/decisions.csv"
    with sample.open(encoding="utf-8-sig", newline="") as stream:
        lines = list(csv.DictReader(stream))

    def decide(*words: str) -> None:
        with decisions.open("w", encoding="utf-8-sig", newline="") as stream:
            writer = csv.DictWriter(stream, lines[0].keys())
            writer.writeheader()
            writer.writerows(line | {"decision": word} for line, word in zip(lines, words, strict=True))

    decide("reject", *["accept"] * 5)
    done = copy.snakemake(SPLITS, *override)
    assert done.returncode == 1 and f"were pairs from {lines[0]['document']} (1)" in done.stderr
    assert "5 of 6 pairs (83.3%" in done.stderr
    decide(*["accept"] * 6)
    done = copy.snakemake(SPLITS, *override)
    assert done.returncode == 0, done.stderr[-3000:]
    manifest = json.loads((copy.folder / "results/datasets/manual/manifest.json").read_text())
    assert manifest["review"]["reviewed"] == 6 and manifest["review"]["pass_rate"] == 1
