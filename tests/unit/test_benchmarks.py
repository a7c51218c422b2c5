"""The benchmarks run, on a tiny model, and count operations right."""

import json
from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model

import tiny
from benchmarks import answering, frameworks, memory, scaling, training
from benchmarks.operations import peak_operations_per_second, training_operations
from benchmarks.report import Report
from benchmarks.workload import Workload
from reprolora.files import read_json

LABELS = ["odd", "even"]


@pytest.fixture(scope="module")
def workload(tmp_path_factory) -> Workload:
    folder = tmp_path_factory.mktemp("model")
    tiny.model(hidden_size=64, intermediate_size=64).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    rows = [{"id": str(n), "text": f"is {n} even?", "label": LABELS[n % 2]} for n in range(40)]
    settings = {
        "labels": LABELS,
        "prompt": {"system": "Even or odd?", "user": "{text}"},
        "training": {
            "batch_size": 8,
            "micro_batch_size": None,
            "epochs": 1.0,
            "evaluations_per_epoch": 1,
            "gradient_checkpointing": False,
            "learning_rate": 1e-3,
            "max_grad_norm": 1.0,
            "max_length": 128,
            "scheduler": "linear",
            "warmup_fraction": 0.0,
            "weight_decay": 0.0,
        },
        "evaluation": {"max_new_tokens": 3},
    }
    peft = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "lora_dropout": 0.0, "target_modules": "all-linear"}
    quantization = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    methods = {"lora": {"peft": peft, "quantization": None}, "qlora": {"peft": peft, "quantization": quantization}}
    return Workload(folder, rows, rows, settings, methods, "fp32", torch.device("cpu"))


def test_training_is_compared_and_written(workload, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "peak_operations_per_second", lambda *_: 1e12)
    report = Report(workload.device)
    training.measure(workload, report, steps=1, repeats=2)
    report.write(tmp_path / "engine.json")
    figures = read_json(tmp_path / "engine.json")
    for name in ("train_lora_vs_trl", "train_lora_vs_trl_batch16", "train_qlora_vs_trl", "gemm_share_fp32"):
        assert 0 < figures[f"{name}_min"] <= figures[name] <= figures[f"{name}_max"]
        assert figures[f"{name}_repeats"] == 2
    assert figures["gemm_share_bf16"] is None and "bf16" in figures["gemm_share_bf16_reason"]
    assert not any(isinstance(value, dict) for value in figures.values())
    assert "train_qlora_vs_trl" in report.table()


def test_answers_and_loss_curves_agree(workload):
    report = Report(workload.device)
    model = training.compare_curves(workload, report, steps=2)
    answering.measure(replace(workload, precision="bf16"), report, model, rows=12, repeats=1)
    assert report.facts["loss_difference_to_plain"] < 1e-4
    for precision in ("", "_fp32"):
        for mode in ("generate", "likelihood"):
            assert report.facts[f"evaluate_{mode}_vs_loop{precision}"] > 0
    assert report.facts["generate_same_labels_fp32"] == 1


def test_costs_are_drawn(workload, tmp_path):
    found = scaling.measure(workload, tmp_path, steps=1, sweeps={"batch": (1, 2), "rank": (2,)}, labels=(2, 4))
    assert len(found) == 2 * (2 + 1 + 2) and (found["examples_per_second"] > 0).all()
    drawn = {f"scaling_{quantity}.{kind}" for quantity in ("batch", "rank", "labels") for kind in ("png", "svg")}
    assert {path.name for path in tmp_path.iterdir()} == {*drawn, "scaling.csv"}


def test_random_rows_share_just_the_prefix():
    rows = memory.random_rows(5, 20, 8, 300)
    assert all(len(row.ids) == 20 and row.prompt_length == 18 for row in rows)
    assert len({tuple(row.ids[:8]) for row in rows}) == 1 and len({row.ids[8] for row in rows}) == 5


def test_operations_of_a_step_by_hand():
    """Two layers of width 32 (4 heads of 8, 2 for keys), 48 inside, 384 tokens known; rank 4."""
    config = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(tiny.model(), config)
    tokens = 5 + 2 + (3 - 1)  # the second row begins with a token of the first
    frozen = {"q": (32, 32), "k": (32, 16), "v": (32, 16), "o": (32, 32), "gate": (32, 48), "up": (32, 48)}
    frozen["down"] = (48, 32)
    products = 0
    for layer in range(2):
        for name, (into, out) in frozen.items():
            input_gradients = 0 if layer == 0 and name in "qkv" else 1
            of_a_token = (1 + input_gradients) * into * out
            of_a_token += 2 * (into * 4 + 4 * out)  # forward, and the gradients of A and B
            of_a_token += 4 * out + input_gradients * 4 * into  # back through B, and through A
            # What the last layer's feed-forward block makes is read at the targets alone.
            products += (7 if layer == 1 and name in ("gate", "up", "down") else tokens) * of_a_token
    pairs = 15 + (2 * 5 + 3) + (2 * 6 + 3)
    attention = 2 * 4 * 8 * 2 * pairs * 3  # layers, heads, size, scores and values, forward and twice backward
    head = 2 * 7 * 32 * 384
    expected = 2 * (products + attention + head)
    assert training_operations(model, 5, [2, 3], [0, 1], targets=7) == expected


def test_peak_is_a_rate_that_a_machine_can_have():
    assert 1e8 < peak_operations_per_second(torch.float32, torch.device("cpu"), seconds=0.01) < 1e15


def test_framework_that_cannot_be_installed_is_said(workload, tmp_path, monkeypatch):
    monkeypatch.setattr(frameworks, "FRAMEWORKS", (frameworks.LitGpt,))
    monkeypatch.setattr(frameworks.sys, "executable", str(tmp_path / "no python"))
    (tmp_path / "no python").write_text("#!/bin/sh\necho no room >&2\nexit 1\n")
    (tmp_path / "no python").chmod(0o755)
    report = Report(workload.device)
    frameworks.measure(workload, report, tmp_path / "venvs", tmp_path, steps=1, repeats=1)
    assert report.facts["train_lora_vs_litgpt"] is None
    assert "no room" in json.dumps(report.facts["train_lora_vs_litgpt_reason"])


def test_times_of_litgpt_s_steps_are_read():
    said = "Epoch 1 | iter 1 step 1 | loss train: 3.1, val: n/a | iter time: 2000.50 ms (step)\n" * 2
    assert frameworks.step_seconds(said) == [2.0005, 2.0005]
