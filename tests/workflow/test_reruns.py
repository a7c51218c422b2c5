"""What runs again after a change: the jobs that the change can touch, all of them and no others.

The expectations are written out by hand: which rules read a key or import a module, and which rules feed which.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from projects import DATASET, EXPERIMENT, MODEL, Project, seconds

SCORED = (
    "summarize_metrics",
    "compare_methods",
    "summarize_resources",
    "analyze_errors",
    "plot_confusion",
    "write_report",
    "write_crate",
)
# The rules that read what a rule makes.
FEEDS = {
    "fetch_model": ("inspect_prompts", "evaluate_prompted", "train_adapter", "evaluate_adapter"),
    "prepare_dataset": ("split_dataset", "write_report"),
    "split_dataset": (
        "check_leakage",
        "audit_splits",
        "inspect_prompts",
        "evaluate_classical",
        "evaluate_prompted",
        "train_adapter",
        "evaluate_adapter",
        "write_report",
    ),
    "check_leakage": (),  # what comes after it waits for it, but does not read it
    "audit_splits": ("plot_audit", "write_report"),
    "inspect_prompts": ("plot_audit", "write_report"),
    "train_adapter": (
        "evaluate_adapter",
        "summarize_resources",
        "plot_training",
        "write_model_card",
        "write_report",
        "write_crate",
    ),
    "evaluate_adapter": (*SCORED, "write_model_card"),
    "evaluate_prompted": SCORED,
    "evaluate_classical": SCORED,
    "summarize_metrics": ("plot_accuracy", "write_main_table", "write_report"),
    "write_main_table": ("write_report",),
    "compare_methods": ("write_report",),
    "summarize_resources": ("plot_resources", "write_report"),
    "analyze_errors": ("write_report",),
    "plot_accuracy": ("write_report",),
    "plot_confusion": ("write_report",),
    "plot_training": ("write_report",),
    "plot_resources": ("write_report",),
    "write_model_card": ("write_crate",),
    "write_report": ("write_crate",),
    "write_crate": (),
    "plot_audit": ("write_report",),
}
# How many jobs of each rule a run has: two baselines without a model, two adapters.
ALL = dict.fromkeys(FEEDS, 1) | {
    "evaluate_classical": 2,
    "train_adapter": 2,
    "evaluate_adapter": 2,
    "write_model_card": 2,
}


def after(*changed: str, **counts: int) -> dict[str, int]:
    """The jobs that run when these rules do: they and everything that their outputs reach.

    All jobs of a rule run, unless `counts` says how many; an adapter that is trained is also evaluated, and
    one that is evaluated gets a new card.
    """
    reached = {*changed, *counts}
    waiting = list(reached)
    while waiting:
        new = set(FEEDS[waiting.pop()]) - reached
        reached |= new
        waiting += new
    if "train_adapter" in counts:
        counts.setdefault("evaluate_adapter", counts["train_adapter"])
    if "evaluate_adapter" in counts:
        counts.setdefault("write_model_card", counts["evaluate_adapter"])
    return {rule: counts.get(rule, ALL[rule]) for rule in reached}


TRAIN = after("train_adapter")
ASK = after("evaluate_adapter", "evaluate_prompted")
DATA = after("prepare_dataset")
SPLIT = after("split_dataset")
AUDIT = after("audit_splits")
REPORT = after("write_report")
TOLD = after("write_report", "write_model_card")
NOTHING: dict[str, int] = {}


def nested(path: str, value) -> dict:
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


FILE = {"source": "file:my data/numbers.jsonl"}
FIXED = {
    "datasets": {"numbers": {"files": {"all": "null", "train": FILE, "test": FILE}}},
    "experiment": {"parity": {"split": {"train": "null", "test": "null"}}},
}
FIXED_WITH_VALIDATION = {
    "datasets": {"numbers": {"files": {"all": "null", "train": FILE, "validation": FILE, "test": FILE}}},
    "experiment": {"parity": {"split": {"train": "null", "validation": "null", "test": "null"}}},
}
CSV = {"format": "csv", "header": False, "columns": {"id": 1, "text": 2, "label": 3}}
THRESHOLDS = {"even": {"at_most": 0}, "odd": {"at_least": 1}}
GGUF = {"gguf": "weights.gguf", "sha256": "0" * 64}
ANOTHER_MODEL = {"models": {"another": MODEL}, "experiment": {"parity": {"models": ["tiny", "another"]}}}
ONE_MORE_MODEL = after(fetch_model=1, inspect_prompts=1, evaluate_prompted=1, train_adapter=2, evaluate_adapter=2)
# Keys that an experiment with instructions reads, which has rules of its own: test_document_runs.py and
# test_answer_runs.py have them.
OF_OTHER_TASK = {
    "experiment.parity.task",
    "experiment.parity.split.group",
    "experiment.parity.prompt.template",
    *(f"experiment.parity.answers.{key}" for key in ("max_new_tokens", "distractors", "choice_seed", "batch_tokens")),
    "experiment.parity.answers.judge",
}
# What is made only when it is asked for, so that no key of it makes a run do anything.
PUBLISHED = {"experiment": {"parity": {"publish": {"hf:me/numbers": {"what": "dataset"}}}}}
# For every key of the experiment and of the entries that it uses: another value, and the jobs that then run.
# (A value that stands alone is the key's; a mapping with an override's keys changes what else it takes to be valid.)
LEAVES = {
    "tracking": ("tensorboard", NOTHING),
    "hardware": ("cuda", after("train_adapter", "evaluate_prompted", "summarize_resources", "write_report")),
    "hardware_catalogue.cpu.description": ("Another machine", REPORT),
    "hardware_catalogue.cpu.accelerator": ("rocm", after("train_adapter", "evaluate_prompted", "write_report")),
    "hardware_catalogue.cpu.price_per_hour": (9.5, after("summarize_resources")),
    "datasets.numbers.description": ("Other words", TOLD),
    "datasets.numbers.license": ("MIT", TOLD),
    "datasets.numbers.citation": ("@misc{numbers}", TOLD),
    "datasets.numbers.url": ("https://example.org/numbers", TOLD),
    "datasets.numbers.files.all.source": ("file:my data/model/config.json", DATA),
    "datasets.numbers.files.all.member": ("numbers.jsonl", DATA),
    "datasets.numbers.files.all.sha256": ("0" * 64, DATA),
    "datasets.numbers.files.train": (FIXED, DATA),
    "datasets.numbers.files.validation": (FIXED_WITH_VALIDATION, DATA),
    "datasets.numbers.files.test": (FIXED, DATA),
    "datasets.numbers.format": ("parquet", DATA),
    "datasets.numbers.header": ({"datasets": {"numbers": CSV}}, DATA),
    "datasets.numbers.quoting": ({"datasets": {"numbers": {"format": "csv", "quoting": False}}}, DATA),
    "datasets.numbers.columns.id": ("words", DATA),
    "datasets.numbers.columns.text": ("kind", DATA),
    "datasets.numbers.columns.label": ("words", DATA),
    "datasets.numbers.label_thresholds": (
        {"datasets": {"numbers": {"label_names": "null", "label_thresholds": THRESHOLDS}}},
        DATA,
    ),
    "datasets.numbers.label_names.0": ({"datasets": {"numbers": {"label_names": {"0": "odd", "1": "even"}}}}, DATA),
    "datasets.numbers.label_names.1": ({"datasets": {"numbers": {"label_names": {"2": "odd"}}}}, DATA),
    "datasets.numbers.labels": (["odd", "even"], DATA),
    "models.tiny.description": ("Another", TOLD),
    "models.tiny.license": ("MIT", TOLD),
    "models.tiny.citation": ("@misc{tiny}", TOLD),
    "models.tiny.source": ("file:my data", after("fetch_model", "write_report")),
    "models.tiny.gguf": ("weights.gguf", after("fetch_model", "write_report")),
    "models.tiny.sha256": ({"models": {"tiny": GGUF}}, after("fetch_model", "write_report")),
    "methods.majority.description": ("Another", REPORT),
    "methods.majority.baseline": ("tfidf-logistic-regression", after(evaluate_classical=1)),
    "methods.tfidf.description": ("Another", REPORT),
    "methods.tfidf.baseline": ("majority", after(evaluate_classical=1)),
    "methods.zero-shot.description": ("Another", REPORT),
    "methods.zero-shot.baseline": ("majority", after(evaluate_classical=1)),
    "methods.zero-shot.shots": (
        {"methods": {"zero-shot": {"baseline": "few-shot", "shots": 2}}},
        after("evaluate_prompted"),
    ),
    "methods.lora.description": ("Another", REPORT),
    "methods.lora.full": (
        {"methods": {"lora": {"peft": "null", "full": True}}},
        after(train_adapter=1),
    ),
    "methods.lora.learning_rate": (1e-3, after(train_adapter=1)),
    "methods.lora.loraplus_lr_ratio": (4, after(train_adapter=1)),
    "methods.lora.peft.peft_type": ("SUPERTUNING", after(train_adapter=1)),
    "methods.lora.peft.r": (8, after(train_adapter=1)),
    "methods.lora.peft.lora_alpha": (8, after(train_adapter=1)),
    "methods.lora.peft.lora_dropout": (0.1, after(train_adapter=1)),
    "methods.lora.peft.target_modules": (["q_proj"], after(train_adapter=1)),
    "methods.lora.quantization": (
        {"methods": {"lora": {"quantization": {"load_in_4bit": True}}}},
        after(train_adapter=1),
    ),
    "methods.lora.baseline": (
        {"methods": {"lora": {"peft": "null", "baseline": "majority"}}},
        # The adapter's arm is gone, and a new arm of a baseline is there.
        after("plot_training", evaluate_classical=1),
    ),
    "methods.qlora.description": ("Another", REPORT),
    "methods.qlora.full": (
        {"methods": {"qlora": {"peft": "null", "full": True, "quantization": "null"}}},
        after(train_adapter=1),
    ),
    "methods.qlora.learning_rate": (1e-3, after(train_adapter=1)),
    "methods.qlora.loraplus_lr_ratio": (4, after(train_adapter=1)),
    "methods.qlora.peft.peft_type": ("SUPERTUNING", after(train_adapter=1)),
    "methods.qlora.peft.r": (8, after(train_adapter=1)),
    "methods.qlora.peft.lora_alpha": (8, after(train_adapter=1)),
    "methods.qlora.peft.lora_dropout": (0.1, after(train_adapter=1)),
    "methods.qlora.peft.target_modules": (["q_proj"], after(train_adapter=1)),
    "methods.qlora.quantization.load_in_4bit": (
        {"methods": {"qlora": {"quantization": "null"}}},
        after(train_adapter=1),
    ),
    "methods.qlora.quantization.load_in_8bit": (
        {
            "methods": {
                "qlora": {
                    "quantization": {
                        "load_in_4bit": False,
                        "load_in_8bit": True,
                        "bnb_4bit_quant_type": "null",
                        "bnb_4bit_use_double_quant": "null",
                    }
                }
            }
        },
        after(train_adapter=1),
    ),
    "methods.qlora.quantization.bnb_4bit_quant_type": ("fp4", after(train_adapter=1)),
    "methods.qlora.quantization.bnb_4bit_use_double_quant": (False, after(train_adapter=1)),
    "experiment.parity.title": ("Another", TOLD),
    "experiment.parity.question": ("Another?", TOLD),
    "experiment.parity.dataset": ({"datasets": {"same": DATASET}, "experiment": {"parity": {"dataset": "same"}}}, DATA),
    "experiment.parity.models": (ANOTHER_MODEL, ONE_MORE_MODEL),
    "experiment.parity.methods": (
        ["majority", "tfidf", "zero-shot", "lora"],
        after(*SCORED, "plot_training"),
    ),
    "experiment.parity.seeds": ([1, 2], after(train_adapter=2)),
    "experiment.parity.split.seed": (2, SPLIT),
    "experiment.parity.split.train": ({"experiment": {"parity": {"split": {"train": 0.4, "test": 0.35}}}}, SPLIT),
    "experiment.parity.split.validation": (
        {"experiment": {"parity": {"split": {"validation": 0.2, "test": 0.3}}}},
        SPLIT,
    ),
    "experiment.parity.split.test": ({"experiment": {"parity": {"split": {"test": 0.2, "train": 0.55}}}}, SPLIT),
    "experiment.parity.split.limits.train": (20, SPLIT),
    "experiment.parity.split.limits.validation": (8, SPLIT),
    "experiment.parity.split.limits.test": (8, SPLIT),
    "experiment.parity.prompt.system": ("Another", after("inspect_prompts", "evaluate_prompted", "train_adapter")),
    "experiment.parity.prompt.user": ("> {text}", after("inspect_prompts", "evaluate_prompted", "train_adapter")),
    "experiment.parity.audit.near_duplicate_similarity": (0.7, AUDIT),
    "experiment.parity.audit.max_leaked_test_fraction": (0.9, AUDIT),
    "experiment.parity.training.learning_rate": (1e-4, TRAIN),
    "experiment.parity.training.epochs": (2, TRAIN),
    "experiment.parity.training.batch_size": (4, TRAIN),
    "experiment.parity.training.micro_batch_size": (4, TRAIN),
    "experiment.parity.training.max_length": (100, after("inspect_prompts", "train_adapter")),
    "experiment.parity.training.warmup_fraction": (0.2, TRAIN),
    "experiment.parity.training.scheduler": ("cosine", TRAIN),
    "experiment.parity.training.weight_decay": (0.1, TRAIN),
    "experiment.parity.training.max_grad_norm": (0.5, TRAIN),
    "experiment.parity.training.evaluations_per_epoch": (3, TRAIN),
    "experiment.parity.training.precision": ("bf16", after("evaluate_prompted", "train_adapter")),
    "experiment.parity.training.gradient_checkpointing": (True, TRAIN),
    "experiment.parity.diagnosis.loss": (3, TRAIN),
    "experiment.parity.diagnosis.steps": (50, TRAIN),
    "experiment.parity.diagnosis.action": ("stop", REPORT),
    "experiment.parity.training.engine": ("plain", TRAIN),
    "experiment.parity.evaluation.modes": (["generate", "likelihood"], ASK | {"plot_calibration": 1}),
    "experiment.parity.evaluation.max_new_tokens": (3, ASK),
    "experiment.parity.evaluation.batch_tokens": (512, ASK),
    # A candidate, which is then the arm's; see also test_sweep_runs.py. That its card is missing is known later.
    "experiment.parity.sweep": (
        {"experiment": {"parity": {"sweep": {"methods": ["lora"], "grid": {"method.peft.r": [3]}}}}},
        {rule: count for rule, count in after(train_adapter=1).items() if rule != "write_model_card"}
        | {"select_candidates": 1},
    ),
    "experiment.parity.learning_curve": (
        {"experiment": {"parity": {"learning_curve": {"methods": ["tfidf"], "rows": [10]}}}},
        REPORT | dict.fromkeys(("draw_rows", "evaluate_classical", "plot_learning_curve"), 1),
    ),
    "experiment.parity.export.methods": (["lora"], NOTHING),
    "experiment.parity.export.gguf": ("q8_0", NOTHING),
    "experiment.parity.publish": (PUBLISHED, NOTHING),
    "upload": (PUBLISHED | {"upload": ["hf:me/numbers"]}, NOTHING),
    "experiment.parity.comparison.margin": (0.02, after("compare_methods")),
}
# The rules whose scripts import a module, themselves or through others.
EVERY = tuple(rule for rule in FEEDS if rule != "check_leakage")  # which no code makes run again
ASKING = ("evaluate_prompted", "train_adapter", "evaluate_adapter")
ENCODING = ("inspect_prompts", *ASKING)
OF_ARMS = ("plot_accuracy", "plot_confusion", "plot_training", "plot_resources")
FIGURES = (*OF_ARMS, "plot_audit")
COMPARING = ("compare_methods", "write_report")
COLLECTING = (
    "summarize_metrics",
    "write_main_table",
    "compare_methods",
    "summarize_resources",
    "analyze_errors",
    *OF_ARMS,
    "write_report",
)
MODULES = {
    "__init__": EVERY,
    "answer_figures": (),
    "answer_probe": ("train_adapter",),
    "answer_runs": (),
    "answer_scores": (),
    "answer_statistics": (),
    "answer_store": (),
    "archives": ("fetch_model", "prepare_dataset"),
    "arms": (*COLLECTING, "write_model_card", "plot_audit"),
    "asked_questions": (),
    "asking": ASKING,
    "audit": ("audit_splits",),
    "bibliography": ("write_report",),
    "bootstrap": ("summarize_metrics", *COMPARING),
    "changes": (),  # exports are made when asked for
    "chat_endpoint": (),
    "choices": (),
    "chunks": (),
    "configuration/__init__": (),
    "configuration/checks": (),
    "configuration/datasets": (),
    "configuration/declarations": (),
    "configuration/endpoints": (),
    "configuration/experiments": (),
    "configuration/faults": (),
    "configuration/hardware": (),
    "configuration/instructions": (),
    "configuration/layers": (),
    "configuration/loading": (),
    "configuration/methods": (),
    "configuration/models": (),
    "configuration/peft_keys": (),
    "configuration/sections": (),
    "configuration/validation": (),
    "configuration/variants": (),
    "configuration/whole": (),
    "configuration/yaml_files": (),
    "corpus": (),
    "crate": ("write_crate",),
    "decisions": (),
    "devices": ASKING,
    "diagnosis": ("train_adapter",),
    "documents": (),
    "energy": ASKING,
    "engine/__init__": ENCODING,
    "engine/answers": ASKING,
    "engine/batches": ASKING,
    "engine/last_layer": ASKING,
    "engine/lora": ASKING,
    "engine/plain": ASKING,
    "engine/ragged": ENCODING,
    "engine/trainer": ("train_adapter",),
    "environment": (),
    "errors": EVERY,
    "evaluation": ASKING,
    "examples": ("evaluate_prompted",),
    "exports": (),
    "failures": ASKING,
    "fetching": ("fetch_model",),
    "figures": FIGURES,
    "files": EVERY,
    "gguf_export": (),
    "gguf_models": ("fetch_model",),
    "heading_questions": (),
    "hubs": ("fetch_model",),
    "imports": (),
    "instruction_evaluation": (),
    "instruction_splits": (),
    "instructions": (),
    "judging": (),
    "labels": (*ASKING, "evaluate_classical", *COLLECTING, "write_model_card", "plot_audit"),
    "leakage": ("audit_splits",),
    "licences": ("write_model_card",),
    "learning_curve": (),  # there is none
    "loading": ("evaluate_prompted", "evaluate_adapter"),
    "local_questions": (),
    "measure": ASKING,
    "memory": (*ASKING, "evaluate_classical"),
    "merging": (),
    "metrics": (
        *(*ASKING, "evaluate_classical"),
        *("summarize_metrics", "analyze_errors", *COMPARING),
    ),
    "mistakes": ("analyze_errors", "write_report"),
    "model_card": ("write_model_card",),
    "model_files": ("fetch_model",),
    "models": ENCODING,
    "near_duplicates": ("audit_splits",),
    "openai_questions": (),
    "package_index": ("fetch_model",),
    "pairs": (),
    "plan": (),
    "precision": ENCODING,
    "prompts": ENCODING,
    "publications": (),
    "raw_files": ("prepare_dataset",),
    "readback": ASKING,
    "report/__init__": ("write_report",),
    "report/answer": ("write_report",),
    "report/answers_method": (),
    "report/answers_page": (),
    "report/audit_section": ("write_report",),
    "report/errors_section": ("write_report",),
    "report/evidence": ("write_report",),
    "report/examples": ("write_report",),
    "report/method_section": ("write_report",),
    "report/page": ("write_report",),
    "report/results": ("write_report",),
    "report/shared": ("write_report",),
    "report/sources": ("write_report",),
    "report/sweep_section": ("write_report",),
    "report/tables": ("write_report",),
    "report/wording": ("write_report",),
    "review": (),
    "rounding": (
        *(*ASKING, "evaluate_classical"),
        *("summarize_metrics", "analyze_errors", "plot_confusion", *COMPARING),
    ),
    "rows": ("prepare_dataset",),
    "sources": ("fetch_model", "prepare_dataset", "write_model_card"),
    "splits": ("split_dataset", "audit_splits", "plot_audit", "write_report"),
    "statistics": COMPARING,
    "structured": (),
    "sweeps": (),
    "tables": ("prepare_dataset",),
    "token_counts": ("inspect_prompts",),
    "tfidf": ("evaluate_classical", "audit_splits"),
    "tracking": ("train_adapter",),
    "uploading": (),
    "training": ("train_adapter",),
    "writing": (),
}
SHARED_SECTIONS = ("_arms", "_method", "_reproducibility", "_resources", "_settings", "_sweep")
# The same for files of the library that are no modules.
TEMPLATES = {
    "references.bib": ("write_report",),
    "templates/model_card.md.jinja": ("write_model_card",),
    **{
        f"templates/{name}.html.jinja": ("write_report",)
        for name in ("report", "page", "_macros", "_audit", "_errors", *SHARED_SECTIONS)
    },
    "templates/answers_report.html.jinja": (),
    "templates/published_dataset.md.jinja": (),
    "templates/published_model.md.jinja": (),
    "templates/review.html.jinja": (),
}


def leaves(value, path: str = "") -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path


@contextmanager
def changed(file: Path, text: str) -> Iterator[None]:
    """Another content for a while."""
    before = file.read_text()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(before)


def configuration(project: Project) -> dict:
    """The whole configuration of a project, every key with its value."""
    from reprolora.configuration import load_configuration

    return load_configuration(project.folder)[0].model_dump()


USED = {
    "hardware_catalogue": ["cpu"],
    "datasets": ["numbers"],
    "instructions": [],
    "models": ["tiny"],
    "methods": ["majority", "tfidf", "zero-shot", "lora", "qlora"],
    "experiment": ["parity"],
}


def test_nothing_after_a_finished_run(finished):
    """And Snakemake finds that out in little more time than it takes to start: on two idle cores, in 1.5 s."""
    assert finished.dry_run() == NOTHING
    done = []
    start = seconds(lambda: finished.snakemake("--version"))
    assert seconds(lambda: done.append(finished.snakemake())) < 6 * start
    assert done[0].returncode == 0 and "Nothing to be done" in done[0].stderr


def test_nothing_when_everything_was_touched(finished):
    time.sleep(0.01)  # so that the new times are later than those of the last output
    for file in finished.folder.rglob("*"):
        if ".snakemake" not in file.parts and ".git" not in file.parts:
            file.touch()
    assert finished.dry_run() == NOTHING


def test_nothing_after_a_checkout(finished):
    """Another branch with other contents, and back: every file of the project is new, and the same."""

    def git(*arguments: str) -> None:
        name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        subprocess.run(["git", *name, *arguments], cwd=finished.folder, check=True, capture_output=True)

    git("checkout", "-q", "-b", "elsewhere")
    tracked = subprocess.run(["git", "ls-files"], cwd=finished.folder, check=True, capture_output=True, text=True)
    for name in tracked.stdout.splitlines():
        if name.endswith((".py", ".smk", ".yaml", "Snakefile")):
            with (finished.folder / name).open("a") as stream:
                stream.write("\n# elsewhere\n")
    git("commit", "-q", "-a", "-m", "Elsewhere")
    assert finished.dry_run() != NOTHING
    git("checkout", "-q", "-")
    assert finished.dry_run() == NOTHING


def test_every_key_is_in_the_table(finished):
    content = configuration(finished)
    for section, names in USED.items():
        content[section] = {name: content[section][name] for name in names}
    # A baseline has no keys of a training, and the other way round; a choice of experiments has a test of its own.
    found = set(leaves(content)) - {"experiments", "instructions"}
    of_training = ("peft", "full", "quantization", "learning_rate", "loraplus_lr_ratio")
    absent = {f"methods.{name}.{key}" for name in ("majority", "tfidf", "zero-shot") for key in of_training}
    absent |= {f"methods.{name}.shots" for name in ("majority", "tfidf", "lora", "qlora")}
    assert found - absent - {"methods.qlora.baseline"} == set(LEAVES) | OF_OTHER_TASK


@pytest.mark.parametrize("leaf", LEAVES)
def test_a_key_reruns_exactly_what_reads_it(finished, leaf):
    value, expected = LEAVES[leaf]
    is_override = isinstance(value, dict)
    assert finished.dry_run(*finished.override(value if is_override else nested(leaf, value))) == expected


def test_entries_that_are_not_used_rerun_nothing(finished):
    content = configuration(finished)
    override = {}
    for section, names in USED.items():
        unused = {name: entry for name, entry in content[section].items() if name not in names}
        override[section] = {name: {"description": "Changed", "license": "MIT"} for name in unused}
        if section in ("methods", "hardware_catalogue"):
            override[section] = {name: {"description": "Changed"} for name in unused}
    override["models"]["smollm2-135m"]["sha256"] = "0" * 64
    override["methods"]["lora-dropout"]["peft"] = {"r": 4}
    override["hardware_catalogue"]["rocm"]["price_per_hour"] = 99
    override["experiment"] = {"sentiment": {"title": "Changed"}}
    assert finished.dry_run(*finished.override(override)) == NOTHING


def test_writing_out_a_default_or_another_order_reruns_nothing(finished):
    file = finished.folder / "config/experiments/parity.yaml"
    full = configuration(finished)["experiment"]["parity"]
    assert full["training"].keys() > EXPERIMENT["training"].keys()
    with changed(file, "# All keys\n" + yaml.safe_dump(full, sort_keys=True)):
        assert finished.dry_run() == NOTHING


def test_another_experiment_runs_its_own_jobs_only(finished):
    experiment = EXPERIMENT | {"methods": ["majority", "lora"]}
    override = {"experiments": ["parity", "second"], "experiment": {"second": experiment}}
    expected = dict.fromkeys(set(FEEDS) - {"fetch_model", "prepare_dataset", "evaluate_prompted"}, 1)
    assert finished.dry_run(*finished.override(override)) == expected


def test_another_row_runs_all_that_rests_on_the_data(finished):
    file = finished.folder / "my data/numbers.jsonl"
    text = file.read_text() + '{"number": 60, "words": "six tens", "kind": 1}\n'
    with changed(file, text):
        assert finished.dry_run() == DATA


@pytest.mark.parametrize(
    ("name", "expected"), [("my data/numbers.jsonl", DATA), ("scripts/plot_accuracy.py", after("plot_accuracy"))]
)
def test_a_replacement_that_is_older_than_the_results_is_seen(finished, name, expected):
    """As after `mv` or `cp -p`: Snakemake by itself looks only at files that are newer than the outputs."""
    file = finished.folder / name
    with changed(file, file.read_text() + "\n"):
        os.utime(file, (0, 0))
        assert finished.dry_run() == expected


def test_another_weight_of_the_users_model_is_seen(finished):
    file = finished.folder / "my data/model/generation_config.json"
    with changed(file, file.read_text() + "\n"):
        assert finished.dry_run() == after("fetch_model")


@pytest.mark.parametrize("rule", EVERY)
def test_a_script_reruns_its_rule(finished, rule):
    file = finished.folder / f"scripts/{rule}.py"
    with changed(file, file.read_text() + "\n# changed\n"):
        assert finished.dry_run() == after(rule)


def test_the_check_of_leakage_is_made_for_new_splits_only(finished):
    """It stands before the arms and changes none of them; nor does it hide a change of theirs in the same run."""
    script = finished.folder / "scripts/check_leakage.py"
    with changed(script, script.read_text() + "\n# changed\n"):
        assert finished.dry_run() == NOTHING
        override = {"audit": {"max_leaked_test_fraction": 0.9}, "training": {"epochs": 2}}
        assert finished.dry_run(*finished.override({"experiment": {"parity": override}})) == TRAIN | AUDIT


def test_every_file_of_the_library_is_in_the_tables(finished):
    library = finished.folder / "scripts/reprolora"
    files = [file.relative_to(library) for file in library.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert {str(file.with_suffix("")) for file in files if file.suffix == ".py"} == set(MODULES)
    assert {str(file) for file in files if file.suffix != ".py"} == set(TEMPLATES)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_reruns_exactly_the_rules_that_import_it(finished, module):
    file = finished.folder / f"scripts/reprolora/{module}.py"
    with changed(file, file.read_text() + "\n# changed\n"):
        assert finished.dry_run() == after(*MODULES[module])


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_template_reruns_the_rules_that_read_it(finished, template):
    file = finished.folder / f"scripts/reprolora/{template}"
    with changed(file, file.read_text() + "\n"):
        assert finished.dry_run() == after(*TEMPLATES[template])


def test_a_command_reruns_its_rule_and_a_comment_nothing(finished):
    """The trigger `code` compares a shell command by its text, which is exact, so it stays on."""
    file = finished.folder / "rules/tables.smk"
    text = file.read_text()
    with changed(file, "# A comment\n" + text.replace("Collecting the metrics", "Gathering the metrics")):
        assert finished.dry_run() == NOTHING
    assert text.count("--price-per-hour {params.price_per_hour}") == 1
    with changed(file, text.replace("--price-per-hour {params", "--price-per-hour  {params")):
        assert finished.dry_run() == after("summarize_resources")


ARM = "results/parity/tiny/lora/seed1"


@pytest.mark.parametrize(
    "name",
    [
        "adapter/adapter_model.safetensors",
        "adapter/adapter_config.json",
        "adapter/tokenizer.json",
        "adapter/tokenizer_config.json",
        "adapter/chat_template.jinja",
        "training.json",
        "training_log.jsonl",
        "resources_train.json",
        "reload_probe.jsonl",
    ],
)
def test_a_deleted_file_of_an_adapter_trains_it_again(finished, name):
    file = finished.folder / ARM / name
    hidden = file.with_name(file.name + ".hidden")
    file.rename(hidden)
    try:
        assert finished.dry_run() == after(train_adapter=1)
    finally:
        hidden.rename(file)


def test_an_edited_adapter_is_evaluated_again(finished):
    file = finished.folder / ARM / "adapter/adapter_config.json"
    with changed(file, file.read_text() + "\n"):
        assert finished.dry_run() == after(evaluate_adapter=1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{ARM}/predictions.jsonl", after(evaluate_adapter=1)),
        ("results/parity/figures/accuracy.png", after("plot_accuracy")),
        ("results/parity/tables/comparison.csv", after("compare_methods")),
        (f"{ARM}/adapter/README.md", after(write_model_card=1)),
        ("results/parity/report.html", REPORT),
        ("results/parity/references.bib", REPORT),
        ("results/parity/ro-crate-metadata.json", after("write_crate")),
    ],
)
def test_a_deleted_result_is_made_again(finished, name, expected):
    file = finished.folder / name
    hidden = file.with_name(file.name + ".hidden")
    file.rename(hidden)
    try:
        assert finished.dry_run() == expected
    finally:
        hidden.rename(file)
