"""An adapter is trained, saved, resumed and reloaded exactly, and what goes wrong is said."""

import json
import math
import shutil
import sys
from subprocess import run

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

import tiny
import toy
import train_adapter
from reprolora import models, readback
from reprolora.engine import trainer as engine_trainer
from reprolora.errors import ArmFailed, UserError
from reprolora.files import read_json, read_jsonl
from reprolora.training import TrainingLog
from running import SCRIPTS
from toy import LABELS, NF4, PEFT, SETTINGS, adapter_of, changed, evaluate, losses_of, train


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    return train(folder, tmp_path_factory.mktemp("trained"))


@pytest.fixture
def copied(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "arm", ignore=shutil.ignore_patterns("predictions.jsonl", "metrics.json"))
    return tmp_path / "arm"


def test_learns_stops_by_itself_and_is_reproducible_byte_for_byte(folder, trained, tmp_path):
    first = evaluate(folder, trained)
    torch.rand(7)  # random numbers used before must not matter
    second = evaluate(folder, train(folder, tmp_path))
    for name in ("predictions.jsonl", "metrics.json", "training.json", "reload_probe.jsonl"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    answers = [row["raw"] for row in read_jsonl(first / "predictions.jsonl") if row["mode"] == "generate"]
    # Six tokens are allowed and a label takes three or four: an answer that is a label was ended by the terminator.
    assert set(answers) <= set(LABELS)
    assert read_json(first / "metrics.json")["modes"]["likelihood"]["accuracy"] > 0.7


def test_seed_decides_the_first_adapter_and_nothing_else_does(folder):
    def first(seed, before=0):
        torch.manual_seed(before)
        return models.adapter_sha256(models.add_adapter(tiny.model(), PEFT, seed))

    assert first(1) == first(1, before=99) != first(2)


def test_every_layer_moved(trained):
    assert all(tensor.any() for name, tensor in adapter_of(trained).items() if "lora_B" in name)


def test_the_adapter_with_the_best_validation_loss_is_the_one_saved(folder, trained):
    record = read_json(trained / "training.json")
    losses = {
        row["step"]: row["validation_loss"]
        for row in read_jsonl(trained / "training_log.jsonl")
        if "validation_loss" in row
    }
    assert len(losses) == 8
    assert record["best_step"] == min(losses, key=losses.get)
    assert record["best_validation_loss"] == min(losses.values())
    tokenizer = models.load_tokenizer(folder / "model")
    model = models.reload_adapter(
        models.load_base(folder / "model", "fp32", torch.device("cpu")), trained / "adapter", tokenizer
    )
    assert models.adapter_sha256(model) == record["adapter_sha256"]
    total, tokens = 0.0, 0
    encoder = train_adapter.PromptEncoder(tokenizer, SETTINGS["prompt"])
    for row in read_jsonl(folder / "validation.jsonl"):
        encoded = encoder.encode(row["text"], row["label"])
        with torch.no_grad():
            logits = model(torch.tensor([encoded.ids])).logits[0]
        targets = torch.tensor(encoded.ids[encoded.prompt_length :])
        total += torch.nn.functional.cross_entropy(
            logits[encoded.prompt_length - 1 : -1], targets, reduction="sum"
        ).item()
        tokens += len(targets)
    assert total / tokens == pytest.approx(record["best_validation_loss"], rel=1e-4)


def test_loss_curve_equals_the_plain_trainer_s(folder, trained, tmp_path):
    plain = train(folder, tmp_path, changed(engine="plain"))
    assert read_json(plain / "training.json")["engine"] == {
        "asked": "plain",
        "used": "plain",
        "reason": None,
        "fused_layers": 0,
    }
    assert read_json(trained / "training.json")["engine"]["fused_layers"] == 14
    assert losses_of(trained) == pytest.approx(losses_of(plain), abs=1e-4)


def test_accumulation_equals_the_large_batch(folder, trained, tmp_path):
    small = train(folder, tmp_path, changed(micro_batch_size=2))
    assert losses_of(small) == pytest.approx(losses_of(trained), abs=1e-4)


def test_gradient_checkpointing_trains_the_same(folder, trained, tmp_path):
    checkpointed = train(folder, tmp_path, changed(gradient_checkpointing=True))
    assert losses_of(checkpointed) == pytest.approx(losses_of(trained), abs=1e-4)


class Killed(BaseException):
    pass


def kill_at(monkeypatch, step):
    real = TrainingLog.on_step_end if hasattr(TrainingLog, "on_step_end") else None

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == step:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLog, "on_step_end", on_step_end, raising=real is not None)
        yield


@pytest.mark.parametrize("engine", ["shared-prefix", "plain"])
def test_resumed_training_ends_as_an_uninterrupted_one(folder, trained, tmp_path, monkeypatch, engine):
    settings = changed(engine=engine, epochs=4, evaluations_per_epoch=2)
    whole = train(folder, tmp_path / "whole", settings)
    for _ in kill_at(monkeypatch, 10):
        with pytest.raises(Killed):
            train(folder, tmp_path / "killed", settings)
    assert not (tmp_path / "killed/training.json").exists()
    resumed = train(folder, tmp_path / "killed", settings)
    for name, tensor in adapter_of(whole).items():
        assert torch.equal(tensor, adapter_of(resumed)[name]), name
    assert losses_of(resumed) == losses_of(whole)
    assert not (tmp_path / "killed/checkpoints").exists()


def test_another_configuration_does_not_resume(folder, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    for _ in kill_at(monkeypatch, 5):
        with pytest.raises(Killed):
            train(folder, tmp_path / "killed", SETTINGS)
    settings = changed(learning_rate=1e-3)
    resumed, fresh = train(folder, tmp_path / "killed", settings), train(folder, tmp_path / "fresh", settings)
    assert "another configuration" in caplog.text and "resuming" not in caplog.text
    assert losses_of(resumed) == losses_of(fresh)


def test_loss_that_is_not_a_number_fails_the_arm_at_its_step(folder, tmp_path, monkeypatch):
    settings = changed()
    real = engine_trainer.AdapterTrainer.compute_loss

    def poisoned(self, *args, **kwargs):
        loss = real(self, *args, **kwargs)
        return loss * math.nan if self.state.global_step == 3 else loss

    monkeypatch.setattr(engine_trainer.AdapterTrainer, "compute_loss", poisoned)
    args = ["train_adapter", "--model", folder / "model/manifest.json", "--train", folder / "train.jsonl"]
    args += ["--validation", folder / "validation.jsonl", "--settings", json.dumps(settings)]
    for flag, name in (("adapter-config", "adapter/adapter_config.json"), ("training-log", "l"), ("resources", "r")):
        args += [f"--{flag}", tmp_path / name]
    args += [
        "--training",
        tmp_path / "training.json",
        "--reload-probe",
        tmp_path / "p",
        "--checkpoints",
        tmp_path / "c",
    ]
    monkeypatch.setattr("sys.argv", list(map(str, args)))
    with pytest.raises(ArmFailed, match=r"nan at step 4; likely the learning rate 0\.01 is too high"):
        train_adapter.main()
    failure = read_json(tmp_path / "failure.json")
    assert failure["stage"] == "train_adapter" and "step 4" in failure["reason"] and failure["arm"] == settings["arm"]
    assert not (tmp_path / "training.json").exists() and not (tmp_path / "adapter/adapter_config.json").exists()


def test_row_longer_than_max_length_stops_before_training(folder, tmp_path):
    with pytest.raises(UserError, match=r"rows are longer than training.max_length 60 .*set max_length to \d+"):
        train(folder, tmp_path, changed(max_length=60))


def test_quantization_is_read_back(folder, tmp_path):
    settings = changed(epochs=1)
    settings["method"] |= {"quantization": NF4}
    out = evaluate(folder, train(folder, tmp_path, settings))
    actual = read_json(out / "training.json")["actual"]
    assert actual["quantization"]["type"] == "nf4" and actual["quantization"]["double_quantization"] is True
    assert actual["quantization"]["block_size"] == 64 and actual["quantization"]["layers"] == 14
    assert actual["adapter_dtype"] == "fp32" and actual["base_dtype"] == "fp32"
    linear = 2 * (64 * (32 + 16 + 16 + 32) + 3 * 64 * 128)  # weights of the two layers' projections
    unquantized = 4 * (2 * 384 * 64 + 5 * 64)  # embedding, output and norms
    scales = linear // 64 + 14 * 4  # one byte for 64 weights, and a float for up to 256 of those in each of 14 layers
    assert actual["base_bytes"] == unquantized + linear // 2 + scales


def test_evaluation_leaves_a_quantized_base_as_it_was(tmp_path, monkeypatch):
    # As on a CPU with bf16 instructions, for which bitsandbytes keeps a second form of the weights.
    monkeypatch.setattr("bitsandbytes.nn.modules.has_avx512bf16", lambda: True)
    tiny.model("llama", hidden_size=64, intermediate_size=128, head_dim=32).save_pretrained(tmp_path)
    base = models.load_base(tmp_path, "fp32", torch.device("cpu"), NF4)
    model = models.add_adapter(base, PEFT | {"target_modules": ["o_proj"]}, seed=1)
    tokens = torch.arange(5, 14)[None]

    def gradients():
        model.train().zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        return {name: tensor.grad.clone() for name, tensor in model.named_parameters() if tensor.requires_grad}

    before = gradients()
    with torch.no_grad():
        model.eval()(input_ids=tokens)
    after = gradients()
    assert all(before[name].any() for name in before if "lora_B" in name)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("key, value", [("bnb_4bit_quant_type", "fp4"), ("bnb_4bit_use_double_quant", False)])
def test_arm_that_is_not_what_its_label_says_fails(folder, key, value):
    base = models.load_base(folder / "model", "fp32", torch.device("cpu"), NF4 | {key: value})
    with pytest.raises(ArmFailed, match="asked for quantization"):
        readback.check_as_asked(readback.describe(base), "fp32", NF4)


def test_quantized_arm_that_was_not_quantized_fails(folder):
    base = models.load_base(folder / "model", "fp32", torch.device("cpu"))
    with pytest.raises(ArmFailed, match="asked for quantization"):
        readback.check_as_asked(readback.describe(base), "fp32", NF4)


def test_model_in_another_type_than_asked_fails(folder):
    base = models.load_base(folder / "model", "bf16", torch.device("cpu"))
    with pytest.raises(ArmFailed, match="asked for base_dtype fp32, but the loaded model has bf16"):
        readback.check_as_asked(readback.describe(base), "fp32", None)


def damage(out, change):
    file = out / "adapter/adapter_model.safetensors"
    tensors = load_file(file)
    change(tensors, next(name for name in sorted(tensors) if "lora_B" in name))
    save_file(tensors, file)


def test_missing_tensor_fails_and_is_named(folder, copied):
    damage(copied, lambda tensors, name: tensors.pop(name))
    with pytest.raises(ArmFailed, match=r"1 tensors are missing \(base_model.*lora_B"):
        evaluate(folder, copied)


def test_renamed_tensor_fails_and_is_named(folder, copied):
    damage(copied, lambda tensors, name: tensors.update({name + ".old": tensors.pop(name)}))
    with pytest.raises(ArmFailed, match=r"1 belong to no layer \(base_model.*\.old"):
        evaluate(folder, copied)


def test_tensor_that_was_never_trained_fails(folder, copied):
    damage(copied, lambda tensors, name: tensors[name].zero_())
    with pytest.raises(ArmFailed, match="all zero, so never trained"):
        evaluate(folder, copied)


def test_adapter_that_answers_otherwise_fails_and_writes_nothing(folder, copied):
    damage(copied, lambda tensors, name: tensors[name].add_(0.5))
    with pytest.raises(ArmFailed, match="the reloaded adapter is not the trained one"):
        evaluate(folder, copied)
    assert not (copied / "metrics.json").exists()


def test_other_tokenizer_fails(folder, copied):
    tokenizer = AutoTokenizer.from_pretrained(copied / "adapter")
    tokenizer.add_tokens(["<new>"])
    tokenizer.save_pretrained(copied / "adapter")
    with pytest.raises(ArmFailed, match="trained with a tokenizer of 260 tokens"):
        evaluate(folder, copied)


def test_model_file_that_is_gone_is_named(folder, tmp_path):
    shutil.copytree(folder / "model", tmp_path / "model")
    (tmp_path / "model/model.safetensors").unlink()
    with pytest.raises(UserError, match=r"model\.safetensors: is missing"):
        models.model_folder(tmp_path / "model/manifest.json")


def test_loading_the_libraries_leaves_nothing_in_the_log():
    loaded = run([sys.executable, "-c", "import reprolora.models"], cwd=SCRIPTS, capture_output=True, text=True)
    assert (loaded.returncode, loaded.stderr) == (0, "")
