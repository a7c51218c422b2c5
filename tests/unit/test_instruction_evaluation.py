"""Answers to instructions and their figures, against the model's own forward pass and figures worked out by hand."""

import argparse
import json
import math
import random

import pytest
import torch

import evaluate_base_answers
import tiny
from reprolora import instruction_evaluation, models
from reprolora.errors import ArmFailed
from reprolora.files import read_json, read_jsonl, sha256_of, write_json, write_jsonl
from reprolora.instruction_evaluation import InstructionAsker, summarize
from reprolora.prompts import InstructionEncoder

SETTINGS = {
    "arm": {"experiment": "toy", "model": "tiny", "method": "zero-shot", "seed": 0, "split_seed": 1},
    "prompt": {"template": "chat", "system": None},
    "accelerator": "cpu",
    "precision": "fp32",
    "answers": {"max_new_tokens": 6, "distractors": 3, "choice_seed": 1, "batch_tokens": 200},
}


def rows(part: str, count: int) -> list[dict]:
    return [
        {
            "id": f"{part}{n}",
            "instruction": f"What is {part} {n}?",
            "input": "" if n % 2 else f"number {n}",
            "output": f"{part} {n} is " + "very " * (n % 3) + "good",
            "source": "s",
            "document": "alone" if part == "test" and n == 5 else "shared",
            "chunk": "c",
        }
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("instructions")
    tiny.model().save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    files = {path.name: {"size": path.stat().st_size} for path in (folder / "model").iterdir()}
    write_json(folder / "model/manifest.json", {"files": files})
    for part, count in (("train", 5), ("validation", 1), ("test", 6)):
        write_jsonl(folder / f"{part}.jsonl", rows(part, count))
    return folder


def evaluate(folder, out, settings=SETTINGS):
    args = argparse.Namespace(
        model=str(folder / "model/manifest.json"),
        **{part: str(folder / f"{part}.jsonl") for part in ("train", "validation", "test")},
        predictions=str(out / "predictions.jsonl"),
        metrics=str(out / "metrics.json"),
        resources=str(out / "resources_evaluate.json"),
        settings=json.dumps(settings),
        threads=1,
    )
    evaluate_base_answers.evaluate_base_answers(args, settings)
    return list(read_jsonl(out / "predictions.jsonl")), read_json(out / "metrics.json")


@pytest.fixture(scope="module")
def made(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    return *evaluate(folder, out), out


def test_scores_are_those_of_the_model_s_own_forward_pass(folder, made):
    predictions, _, _ = made
    tokenizer, model = models.load_tokenizer(folder / "model"), tiny.model()
    encoder = InstructionEncoder(tokenizer, SETTINGS["prompt"])
    every = {row["id"]: row for part in ("train", "validation", "test") for row in rows(part, 6)}
    for row in predictions:
        prompt = encoder.encode_prompt(every[row["id"]])
        for place, name in enumerate([row["id"], *row["choices"]]):
            answer = [*tokenizer(every[name]["output"]).input_ids, encoder.terminator]
            with torch.no_grad():
                steps = model(torch.tensor([prompt + answer])).logits[0].log_softmax(-1)[len(prompt) - 1 : -1]
            expected = [steps[k, token].item() for k, token in enumerate(answer)]
            assert row["choice_scores"][place] == pytest.approx(sum(expected) / len(expected), abs=1e-4)
            if place == 0:
                assert row["reference_tokens"] == len(answer)
                assert row["reference_loss"] == pytest.approx(-sum(expected), abs=1e-3)
        output = model.generate(torch.tensor([prompt]), max_new_tokens=6, do_sample=False, pad_token_id=0)[0]
        spoken = output[len(prompt) :].tolist()
        assert row["answer"] == tokenizer.decode(spoken, skip_special_tokens=True)
        assert row["finished"] == (spoken[-1] in (2, encoder.terminator))


def test_choices_come_from_the_document_and_what_was_borrowed_is_counted(made):
    predictions, metrics, out = made
    assert [row["choices"] for row in predictions if row["document"] == "alone"] == [[]]
    assert [row["correct"] for row in predictions if row["document"] == "alone"] == [None]
    # Of the document are five test rows: the four others are enough for each.
    assert metrics["distractors"] == {"test": 15, "validation": 0, "train": 0}
    assert (metrics["n"], metrics["n_choices"], metrics["task"], metrics["split"]) == (6, 5, "instruction", "test")
    right = [row["choice_scores"][0] == max(row["choice_scores"]) for row in predictions if row["choices"]]
    assert metrics["metrics"]["domain_accuracy"] == pytest.approx(sum(right) / 5)
    assert metrics["predictions_sha256"] == sha256_of(out / "predictions.jsonl")
    resources = read_json(out / "resources_evaluate.json")
    assert resources["examples"] == 6 and resources["engine"] == "shared-prefix" and resources["load_seconds"] > 0


def test_neither_batches_nor_the_order_of_rows_change_anything(folder, made, tmp_path):
    predictions, metrics, _ = made
    for part in ("train", "validation", "test"):
        shuffled = list(read_jsonl(folder / f"{part}.jsonl"))
        random.Random(0).shuffle(shuffled)
        write_jsonl(tmp_path / f"{part}.jsonl", shuffled)
    (tmp_path / "model").symlink_to(folder / "model")
    settings = SETTINGS | {"answers": SETTINGS["answers"] | {"batch_tokens": 1}}
    again, figures = evaluate(tmp_path, tmp_path / "out", settings)
    assert [row["id"] for row in again] != [row["id"] for row in predictions]
    found = {row["id"]: row for row in again}
    for row in predictions:
        other = found[row["id"]]
        assert other["choice_scores"] == pytest.approx(row["choice_scores"], abs=1e-4)
        same = ("answer", "finished", "scores", "choices", "correct", "reference_tokens")
        assert {key: other[key] for key in same} == {key: row[key] for key in same}
    assert figures["metrics"] == pytest.approx(metrics["metrics"], abs=1e-4)


def test_the_same_again_gives_the_same_bytes(folder, made, tmp_path):
    evaluate(folder, tmp_path)
    for name in ("predictions.jsonl", "metrics.json"):
        assert (tmp_path / name).read_bytes() == (made[2] / name).read_bytes()


def test_a_model_that_the_engine_does_not_know_is_asked_the_ordinary_way(folder, made, monkeypatch, tmp_path):
    monkeypatch.setattr("reprolora.asking.why_not", lambda model: "some reason")
    predictions, _ = evaluate(folder, tmp_path)
    assert read_json(tmp_path / "resources_evaluate.json")["engine"] == "plain"
    for ours, theirs in zip(predictions, made[0], strict=True):
        assert ours["answer"] == theirs["answer"]
        assert ours["choice_scores"] == pytest.approx(theirs["choice_scores"], abs=1e-4)


def row(loss: float, tokens: int, correct: bool | None, **scores) -> dict:
    scores = dict.fromkeys(("exact_match", "token_f1", "rouge_l", "chrf"), 0.5) | scores
    return {"reference_loss": loss, "reference_tokens": tokens, "correct": correct, "scores": scores}


def test_the_loss_is_per_token_of_all_references_and_rows_without_choices_are_left_out():
    found = summarize([row(2.0, 1, True, chrf=1), row(1.0, 5, None, chrf=0), row(6.0, 3, False, exact_match=1)])
    assert (found["n"], found["n_choices"]) == (3, 2)
    assert found["metrics"] == {
        "domain_accuracy": 0.5,
        "exact_match": round(2 / 3, 6),
        "token_f1": 0.5,
        "rouge_l": 0.5,
        "chrf": 0.5,
        "loss": 1.0,
        "perplexity": round(math.e, 6),
    }
    nothing = summarize([row(9000.0, 3, None)])["metrics"]
    assert nothing["domain_accuracy"] is None and nothing["loss"] == 3000 and nothing["perplexity"] is None


def test_a_tie_is_no_right_choice():
    one, two = rows("test", 2)
    low, high = torch.tensor([-2.0, -1.0]), torch.tensor([-1.0])
    for scores, correct in (([high, low], True), ([low, high], False), ([low, low], False), ([high], None)):
        found = instruction_evaluation.prediction(one, ("x", True), [two] * (len(scores) - 1), scores)
        assert found["correct"] is correct
    assert found["reference_loss"] == 1 and found["reference_tokens"] == 1


def test_an_answer_is_finished_when_a_terminator_ended_it(folder):
    encoder = InstructionEncoder(models.load_tokenizer(folder / "model"), SETTINGS["prompt"])
    asker, some = InstructionAsker(tiny.model(), encoder), rows("test", 4)
    prompts = [encoder.encode_prompt(row) for row in some]
    spoken = asker.engine.generate(asker.model, prompts, 6, asker.terminators)
    assert [finished for _, finished in asker.generate(some, 6)] == [False] * 4
    asker.terminators = {spoken[0][5]}
    ends = [tokens.index(spoken[0][5]) if spoken[0][5] in tokens else 6 for tokens in spoken]
    assert [finished for _, finished in asker.generate(some, 6)] == [end < 6 for end in ends]
    assert ends[0] < 6 and max(ends) == 6
    assert not any(finished for _, finished in asker.generate(some, min(ends)))


def test_a_prompt_with_an_answer_that_the_model_has_no_positions_for_fails_before_the_work(folder, tmp_path):
    settings = SETTINGS | {"answers": SETTINGS["answers"] | {"max_new_tokens": 500}}
    with pytest.raises(ArmFailed, match=r"take \d+ tokens, but the model knows 512 positions; shorten these rows"):
        evaluate(folder, tmp_path, settings)
    assert not list(tmp_path.iterdir())
