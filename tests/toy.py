"""A classification toy that a tiny model learns in seconds, and the scripts that train and evaluate it."""

import argparse
import copy
import json
import random
from pathlib import Path

import torch
from safetensors.torch import load_file

import evaluate_adapter
import tiny
import train_adapter
from reprolora.files import read_jsonl, write_json, write_jsonl

LABELS = ["red", "blue"]
PEFT = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": "all-linear"}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
SETTINGS = {
    "arm": {"experiment": "toy", "model": "tiny", "method": "lora", "seed": 1, "split_seed": 1},
    "task": "classification",
    "labels": LABELS,
    "prompt": {"system": "Answer red or blue.", "user": "{text}"},
    "diagnosis": {"loss": 2.0, "steps": 200},
    "accelerator": "cpu",
    "training": {
        "learning_rate": 1e-2,
        "epochs": 8,
        "batch_size": 8,
        "micro_batch_size": None,
        "max_length": 128,
        "warmup_fraction": 0.0,
        "scheduler": "linear",
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "evaluations_per_epoch": 1,
        "precision": "fp32",
        "gradient_checkpointing": False,
        "engine": "shared-prefix",
    },
    "method": {"peft": PEFT, "full": False, "quantization": None, "loraplus_lr_ratio": None},
}
EVALUATION = {"modes": ["generate", "likelihood"], "max_new_tokens": 6, "batch_tokens": 512}


def rows(count: int, seed: int) -> list[dict]:
    draw = random.Random(seed)
    made = []
    for number in range(count):
        label = draw.choice(LABELS)
        words = {"red": ["rose", "fire"], "blue": ["sea", "sky"]}[label]
        made.append(
            {"id": f"{seed}-{number}", "text": " ".join(draw.choices(words, k=draw.randint(1, 5))), "label": label}
        )
    return made


def instructions(count: int, seed: int) -> list[dict]:
    """The same as rows of instructions, whose answers are a sentence."""
    return [
        {"id": row["id"], "instruction": "Which colour?", "input": row["text"], "output": f"It is {row['label']}."}
        for row in rows(count, seed)
    ]


def make(folder: Path, rows=rows) -> Path:
    """A base model with its manifest, and split rows, in `folder`."""
    tokenizer = tiny.tokenizer()
    tiny.model("llama", hidden_size=64, intermediate_size=128).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    files = {path.name: {"size": path.stat().st_size} for path in (folder / "model").iterdir()}
    write_json(folder / "model/manifest.json", {"files": files})
    for split, count in (("train", 40), ("validation", 16), ("test", 12)):
        write_jsonl(folder / f"{split}.jsonl", rows(count, len(split)))
    return folder


def changed(**training) -> dict:
    settings = copy.deepcopy(SETTINGS)
    settings["training"] |= training
    return settings


def train(folder, out, settings=SETTINGS, tracking="none", on_problem="warn"):
    args = argparse.Namespace(
        model=str(folder / "model/manifest.json"),
        train=str(folder / "train.jsonl"),
        validation=str(folder / "validation.jsonl"),
        settings=json.dumps(settings),
        adapter_config=str(out / "adapter/adapter_config.json"),
        training_log=str(out / "training_log.jsonl"),
        training=str(out / "training.json"),
        resources=str(out / "resources_train.json"),
        reload_probe=str(out / "reload_probe.jsonl"),
        checkpoints=str(out / "checkpoints"),
        tracking=tracking,
        tracking_folder=str(out / "tracking"),
        on_problem=on_problem,
        threads=1,
    )
    train_adapter.train(args, settings)
    return out


def evaluate(folder, out, evaluation=EVALUATION):
    settings = {key: SETTINGS[key] for key in ("arm", "labels", "prompt", "accelerator")} | {"evaluation": evaluation}
    args = argparse.Namespace(
        model=str(folder / "model/manifest.json"),
        adapter_config=str(out / "adapter/adapter_config.json"),
        training=str(out / "training.json"),
        reload_probe=str(out / "reload_probe.jsonl"),
        validation=str(folder / "validation.jsonl"),
        test=str(folder / "test.jsonl"),
        settings=json.dumps(settings),
        predictions=str(out / "predictions.jsonl"),
        metrics=str(out / "metrics.json"),
        resources=str(out / "resources_evaluate.json"),
        threads=1,
    )
    evaluate_adapter.evaluate_adapter(args, settings)
    return out


def adapter_of(out) -> dict[str, torch.Tensor]:
    return load_file(out / "adapter/adapter_model.safetensors")


def losses_of(out):
    return [row["loss"] for row in read_jsonl(out / "training_log.jsonl") if "loss" in row]
