"""Models for serving, and publishing: nothing unless asked, then what was asked for and no more."""

import json

LORA = "results/exports/parity/tiny/lora/seed1"
PUBLISH = {
    "hf:me/numbers": {"what": "dataset"},
    "hf:me/adapter": {"what": "adapter", "arm": "tiny/lora/seed1"},
    "modelscope:me/merged": {"what": "merged", "arm": "tiny/lora/seed1"},
    "hf:me/gguf": {"what": "gguf", "arm": "tiny/lora/seed1", "private": False},
}


def answers(folder, name) -> dict[str, str]:
    return {row["id"]: row["prediction"] for row in map(json.loads, (folder / name).read_text().splitlines())}


def test_an_adapter_is_exported_and_listed_for_publishing(another):
    options = another.override({"experiment": {"parity": {"export": {"methods": ["lora"]}, "publish": PUBLISH}}})
    assert another.dry_run(*options) == {}
    exports = {"merge_adapter": 1, "export_gguf": 1, "evaluate_export": 2}
    assert another.dry_run("export", *options) == {"export": 1, **exports}
    assert another.dry_run("export")["merge_adapter"] == 2, "by default, all that can be merged"
    assert another.dry_run("publish", *options) == {"publish": 1, **exports}

    done = another.snakemake("publish", "export", *options)
    assert done.returncode == 0, done.stderr[-5000:]
    before = answers(another.folder, "results/parity/tiny/lora/seed1/predictions.jsonl")
    for name in ("merged", "gguf"):
        after = answers(another.folder, f"{LORA}/{name}/predictions.jsonl")
        changes = json.loads((another.folder / LORA / name / "changes.json").read_text())
        assert changes["n"] == len(after) == 15
        assert changes["changed"] == sum(before[row] != answer for row, answer in after.items())
        metrics = json.loads((another.folder / LORA / name / "metrics.json").read_text())
        assert (metrics["arm"]["method"], metrics["export"]["format"]) == ("lora", name)
        before = after
    listed = done.stdout + done.stderr
    for repository, publication in PUBLISH.items():
        where = "public" if repository == "hf:me/gguf" else "private"
        assert f"{repository}: {publication['what']}, {where}, licence CC0-1.0" in listed
        folder = another.folder / "results/publish" / repository.replace(":", "/")
        assert {"README.md", "LICENSE", "checksums.sha256"} < {path.name for path in folder.iterdir()}
    assert listed.count("nothing was uploaded") == 4
    card = (another.folder / "results/publish/modelscope/me/merged/README.md").read_text()
    changes = json.loads((another.folder / LORA / "merged/changes.json").read_text())
    assert f"it gave {changes['changed']} of 15 answers to test rows otherwise" in card
    assert "from modelscope import" in card

    # The results are those of a run without exports, and a second export has nothing to do.
    assert another.dry_run(*options) == {}
    assert another.dry_run("export", *options) == {}
    other_type = another.override({"experiment": {"parity": {"export": {"methods": ["lora"], "gguf": "q8_0"}}}})
    assert another.dry_run("export", *other_type) == {"export": 1, "export_gguf": 1, "evaluate_export": 1}


def test_an_adapter_that_follows_instructions_is_exported(fresh):
    rows = [{"instruction": f"Say {n} in words.", "input": "", "output": f"number {n}"} for n in range(40)]
    (fresh.folder / "my data/orders.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"all": {"source": "file:my data/orders.jsonl"}}
    experiment = {
        "title": "Orders",
        "question": "Does it run?",
        "task": "instruction",
        "dataset": "orders",
        "models": ["tiny"],
        "methods": ["zero-shot", "lora"],
        "split": {"train": 0.6, "validation": 0.2, "test": 0.2},
        "training": {"batch_size": 8, "max_length": 256, "precision": "fp32"},
        "answers": {"max_new_tokens": 4, "distractors": 2},
        "publish": {"hf:me/orders": {"what": "dataset"}},
    }
    orders = {"description": "Orders", "license": "CC0-1.0", "files": files}
    (fresh.folder / "config/experiments/orders.yaml").write_text(json.dumps(experiment))
    options = fresh.override({"experiments": ["orders"], "instructions": {"orders": orders}})
    done = fresh.snakemake("export", "publish", *options)
    assert done.returncode == 0, done.stderr[-5000:]
    for name in ("merged", "gguf"):
        folder = fresh.folder / "results/exports/orders/tiny/lora/seed1" / name
        assert json.loads((folder / "changes.json").read_text())["n"] == 8
        assert json.loads((folder / "metrics.json").read_text())["task"] == "instruction"
    card = (fresh.folder / "results/publish/hf/me/orders/README.md").read_text()
    assert "| train | 24 |" in card and "`instruction`" in card and "text-generation" in card


def test_what_cannot_be_published_or_merged_is_refused_at_once(fresh):
    def refused(value: dict) -> str:
        done = fresh.snakemake("--dry-run", *fresh.override(value))
        assert done.returncode == 2
        [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        return line

    def publishing(repository: str = "hf:me/x", **publication) -> dict:
        return {"experiment": {"parity": {"publish": {repository: {"what": "adapter"} | publication}}}}

    arm = {"arm": "tiny/lora/seed1"}
    unlicensed = {"datasets": {"numbers": {"license": "not for publication"}}}
    assert "'not for publication' is no licence that says what others may do" in refused(publishing(**arm) | unlicensed)
    assert "no trained arm 'tiny/lora/seed2'; did you mean 'tiny/lora/seed1'?" in refused(
        publishing(arm="tiny/lora/seed2")
    )
    assert "no trained arm 'tiny/zero-shot/seed0'" in refused(publishing(arm="tiny/zero-shot/seed0"))
    assert "write hf:OWNER/NAME or modelscope:OWNER/NAME" in refused(publishing("me/x", **arm))
    assert "give arm" in refused(publishing())
    assert "no chosen experiment publishes 'hf:me/y'; did you mean 'hf:me/x'?" in refused(
        publishing(**arm) | {"upload": ["hf:me/y"]}
    )
    methods = ["lora", "prompt-tuning"]
    prompt = {"experiment": {"parity": {"methods": methods, "export": {"methods": ["prompt-tuning"]}}}}
    assert "an adapter of type PROMPT_TUNING cannot be merged" in refused(prompt)
