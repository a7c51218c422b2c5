"""A training on rows of instructions: what it learns, what it records, and the same model after a reload."""

import torch

import toy
from reprolora import models
from reprolora.answer_probe import probe_answers
from reprolora.asking import check_reloaded
from reprolora.files import read_json, read_jsonl
from reprolora.prompts import InstructionEncoder

PROMPT = {"template": "alpaca", "system": None}


def settings(**training) -> dict:
    changed = toy.changed(**{"max_length": 400, "epochs": 1, "micro_batch_size": 4} | training)
    del changed["labels"]
    return changed | {"task": "instruction", "prompt": PROMPT}


def test_an_adapter_learns_answers_and_is_the_same_when_it_is_reloaded(tmp_path):
    folder = toy.make(tmp_path, toy.instructions)
    out = toy.train(folder, tmp_path / "arm", settings(epochs=8))
    first, *_, last = toy.losses_of(out)
    assert last < first / 2  # nearly all of an answer is the same sentence
    record = read_json(out / "training.json")
    assert record["truncated_rows"] == record["left_out_rows"] == 0
    # A token for each letter and one for the terminator.
    rows = list(read_jsonl(folder / "train.jsonl"))
    assert record["supervised_tokens"] == sum(len(row["output"]) + 1 for row in rows)

    tokenizer = models.load_tokenizer(folder / "model")
    base = models.load_base(folder / "model", "fp32", torch.device("cpu"))
    model = models.reload_adapter(base, out / "adapter", tokenizer)
    before = list(read_jsonl(out / "reload_probe.jsonl"))
    after = probe_answers(model, InstructionEncoder(tokenizer, PROMPT), list(read_jsonl(folder / "validation.jsonl")))
    assert check_reloaded(before, after, "fp32") < 1e-4
    assert len(before) == 16 and before[0]["raw"].startswith("It is")

    # What is saved beside the adapter asks in the words that it was trained with.
    saved = models.load_tokenizer(out / "adapter")
    assert "### Instruction:" in saved.chat_template


def test_probe_scores_the_reference_by_its_mean_log_probability(tmp_path):
    folder = toy.make(tmp_path, toy.instructions)
    tokenizer = models.load_tokenizer(folder / "model")
    model = models.load_base(folder / "model", "fp32", torch.device("cpu")).eval()
    encoder = InstructionEncoder(tokenizer, PROMPT)
    row = next(iter(read_jsonl(folder / "validation.jsonl")))
    [found] = probe_answers(model, encoder, [row])
    encoded = encoder.encode(row)
    with torch.no_grad():
        loss = model(torch.tensor([encoded.ids]), labels=torch.tensor([encoded.labels])).loss
    assert abs(found["log_probabilities"]["reference"] + loss.item()) < 1e-5


def test_rows_that_are_too_long_are_cut_and_counted(tmp_path):
    folder = toy.make(tmp_path, toy.instructions)
    tokenizer = models.load_tokenizer(folder / "model")
    encoder = InstructionEncoder(tokenizer, PROMPT)
    lengths = [encoder.encode(row) for row in read_jsonl(folder / "train.jsonl")]
    limit = sorted(len(row.ids) for row in lengths)[20]
    out = toy.train(folder, tmp_path / "arm", settings(max_length=limit))
    record = read_json(out / "training.json")
    left_out = sum(row.prompt_length >= limit for row in lengths)
    assert record["left_out_rows"] == left_out > 0
    assert record["truncated_rows"] == sum(len(row.ids) > limit for row in lengths) - left_out > 0
    assert record["train_rows"] == len(lengths) - left_out
