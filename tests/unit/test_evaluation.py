"""Asking a model about rows: both engines say the same, whatever the model, and the record is complete."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import tiny
from reprolora.asking import check_reloaded
from reprolora.errors import ArmFailed
from reprolora.evaluation import Asker, evaluate
from reprolora.measure import Meter
from reprolora.precision import choose_precision
from reprolora.prompts import PromptEncoder

PROMPT = {"system": "Say a or b.", "user": "{text}"}
ROWS = [{"id": str(n), "text": "x y z"[: n + 1], "label": "ab"[n % 2]} for n in range(5)]
BOTH = {"modes": ["generate", "likelihood"], "max_new_tokens": 3}
ARM = {"experiment": "e", "model": "m", "method": "zero-shot", "seed": 0, "split_seed": 1}


def asker(model, labels=("a", "b"), **options) -> Asker:
    return Asker(model, PromptEncoder(tiny.tokenizer(), PROMPT), labels, **options)


def unknown_family() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=384, n_embd=32, n_layer=2, n_head=2, eos_token_id=2)).eval()


def test_both_engines_give_the_same_answers_and_scores():
    ours = asker(tiny.model(), batch_tokens=64)
    plain = asker(tiny.model())
    plain.engine, plain.options = asker(unknown_family()).engine, {}
    texts = [row["text"] for row in ROWS]
    assert ours.generate(texts, 4) == plain.generate(texts, 4)
    assert torch.allclose(ours.log_probabilities(texts), plain.log_probabilities(texts), atol=1e-4)


def test_family_that_the_engine_does_not_know_is_asked_row_by_row():
    asked = asker(unknown_family(), batch_tokens=64)
    assert "gpt2" in asked.fallback
    predictions, metrics = evaluate(asked, ROWS, BOTH, ARM)
    assert metrics["modes"].keys() == {"generate", "likelihood"} and len(predictions) == 10


def test_predictions_hold_the_raw_answer_or_the_probabilities():
    predictions, metrics = evaluate(asker(tiny.model()), ROWS, BOTH, ARM)
    generated, scored = predictions[:5], predictions[5:]
    assert [row["id"] for row in generated] == [row["id"] for row in scored] == list("01234")
    assert all(isinstance(row["raw"], str) and row["probabilities"] is None for row in generated)
    assert all(sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-5) for row in scored)
    assert all(row["prediction"] == max(row["probabilities"], key=row["probabilities"].get) for row in scored)
    assert metrics["modes"]["likelihood"]["invalid_rate"] == 0 and "calibration" in metrics["modes"]["likelihood"]
    assert metrics["arm"] == ARM and "calibration" not in metrics["modes"]["generate"]


def test_labels_of_which_one_begins_another_are_compared_with_their_terminator():
    made = asker(tiny.model(), labels=("very", "very good", "bad"))
    assert all(ids[-1] == made.encoder.terminator for ids in made._label_ids)
    assert all(ids[-1] != 2 for ids in asker(tiny.model())._label_ids)
    assert made.log_probabilities(["x"]).shape == (1, 3)


def probe(raw="a", score=-0.5, name="1"):
    return [{"id": name, "raw": raw, "log_probabilities": {"a": score, "b": -2.0}}]


def test_reload_check_accepts_rounding_and_refuses_the_rest():
    assert check_reloaded(probe(), probe(score=-0.5001), "fp32") == pytest.approx(1e-4)
    with pytest.raises(ArmFailed, match=r"1 of 1 answers differ .*'a' became 'b'"):
        check_reloaded(probe(), probe(raw="b"), "fp32")
    with pytest.raises(ArmFailed, match=r"log-probabilities by up to 0\.1"):
        check_reloaded(probe(), probe(score=-0.6), "fp32")
    with pytest.raises(ArmFailed, match="by up to nan"):
        check_reloaded(probe(), probe(score=float("nan")), "fp32")
    with pytest.raises(ArmFailed, match="other rows"):
        check_reloaded(probe(), probe(name="2"), "fp32")


@pytest.mark.parametrize(
    "capabilities, chosen", [({"avx2": True, "avx512_bf16": False}, "fp32"), ({"avx512_bf16": True}, "bf16")]
)
def test_precision_auto_takes_bf16_only_where_the_cpu_has_it(monkeypatch, capabilities, chosen):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    found = choose_precision("auto", torch.device("cpu"))
    assert (found["asked"], found["chosen"]) == ("auto", chosen) and "CPU" in found["reason"]
    assert choose_precision("fp16", torch.device("cpu"))["chosen"] == "fp16"


@pytest.mark.parametrize("bf16, chosen", [(True, "bf16"), (False, "fp16")])
def test_precision_auto_on_a_gpu(monkeypatch, bf16, chosen):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: bf16 and not including_emulation)
    assert choose_precision("auto", torch.device("cuda"))["chosen"] == chosen


def test_phases_are_measured_apart():
    meter = Meter(torch.device("cpu"), threads=2)
    with meter.phase("large"):
        torch.ones(300_000_000 // 4).sum()
    with meter.phase("small"):
        torch.ones(10)
    assert meter.record["large_peak_bytes"] - meter.record["small_peak_bytes"] > 250_000_000
    assert meter.record["threads"] == 2 and meter.record["small_seconds"] > 0
