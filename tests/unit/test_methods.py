"""Every method of the catalogue is trained, read back, saved and reloaded as what it says it is."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import toy
from reprolora import models, readback
from reprolora.configuration import ConfigurationError, load_configuration
from reprolora.engine.trainer import AdapterTrainer
from reprolora.errors import ArmFailed
from reprolora.files import read_json
from toy import NF4, PEFT, changed, evaluate, train

ROOT = Path(__file__).parents[2]
CATALOGUE = load_configuration(ROOT)[0].methods
# The engine that each is trained with, and the layers that are fused: 14 linear layers in the tiny model's two blocks.
ENGINES = {
    "qlora-fp4": ("shared-prefix", 14),
    "qlora-single": ("shared-prefix", 14),
    "lora-8bit": ("plain", 0),
    "rslora": ("shared-prefix", 14),
    "dora": ("shared-prefix", 0),
    "qdora": ("shared-prefix", 0),
    "pissa": ("shared-prefix", 14),
    "loraplus": ("shared-prefix", 14),
    "ia3": ("shared-prefix", 0),
    "prompt-tuning": ("plain", 0),
    "full": ("shared-prefix", 0),
}
LINEAR = 2 * (64 * (32 + 16 + 16 + 32) + 3 * 64 * 128)  # weights of the two blocks' projections
INPUTS_AND_OUTPUTS = 2 * (64 + 32 + 2 * (64 + 16) + 32 + 64 + 3 * (64 + 128))  # of those layers
OUTPUTS = 2 * (32 + 16 + 16 + 64 + 128 + 128 + 64)
WHOLE = LINEAR + 2 * 384 * 64 + 5 * 64  # with embedding, output and norms
TRAINABLE = {
    "rslora": 64 * INPUTS_AND_OUTPUTS,
    "dora": 16 * INPUTS_AND_OUTPUTS + OUTPUTS,  # and a magnitude for each output
    "qdora": 16 * INPUTS_AND_OUTPUTS + OUTPUTS,
    "ia3": 2 * (16 + 16 + 128),  # keys, values, inner activations
    "prompt-tuning": 20 * 64,
    "full": WHOLE,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return toy.make(tmp_path_factory.mktemp("toy"))


def settings_of(name: str, **training) -> dict:
    """The settings that the toy has with a method of the catalogue."""
    settings = changed(**({"epochs": 2} | training))
    method = CATALOGUE[name]
    settings["arm"]["method"] = name
    settings["training"]["learning_rate"] = method.learning_rate or 5e-3
    settings["method"] = method.model_dump(include=set(settings["method"]))
    return settings


def with_method(**method) -> dict:
    settings = changed(epochs=1)
    settings["method"] |= method
    return settings


def load(folder, quantization=None):
    return models.load_base(folder / "model", "fp32", torch.device("cpu"), quantization)


def test_the_catalogue_has_no_method_that_is_not_tried():
    trained = {name for name, method in CATALOGUE.items() if method.trains}
    assert trained == {*ENGINES, "lora", "qlora", "lora-dropout", "qlora-dropout"}


@pytest.mark.parametrize("name", ENGINES)
def test_method_is_trained_read_back_and_reloaded(folder, tmp_path, name):
    out = evaluate(folder, train(folder, tmp_path, settings_of(name)))
    record = read_json(out / "training.json")
    used, fused = ENGINES[name]
    assert (record["engine"]["used"], record["engine"]["fused_layers"]) == (used, fused)
    assert (record["engine"]["reason"] is None) == (used == "shared-prefix")
    trainable = TRAINABLE.get(name, 16 * INPUTS_AND_OUTPUTS)
    assert record["actual"]["trainable_parameters"] == trainable
    assert record["actual"]["base_parameters"] == (0 if name == "full" else WHOLE)
    assert sum(tensor.numel() for tensor in toy.adapter_of(out).values()) == trainable
    assert record["initial_adapter_sha256"] != record["adapter_sha256"]
    assert read_json(out / "metrics.json")["modes"]["likelihood"]["n"] == 12


@pytest.mark.parametrize("engine", ["dora", "ia3", "full", "pissa", "rslora", "loraplus"])
def test_shared_prefix_trains_as_the_plain_engine(folder, tmp_path, engine):
    ours = train(folder, tmp_path / "ours", settings_of(engine))
    plain = train(folder, tmp_path / "plain", settings_of(engine, engine="plain"))
    assert read_json(ours / "training.json")["engine"]["used"] == "shared-prefix"
    assert toy.losses_of(ours) == pytest.approx(toy.losses_of(plain), abs=1e-4)


# What is read back


def adapter_facts(folder, quantization=None, **peft) -> dict:
    model = models.add_adapter(load(folder, quantization), PEFT | peft, seed=1)
    return readback.describe(model)["adapter"] | {"initialization": readback.initialization(model)}


def test_rank_scaling_and_magnitudes_are_read_from_the_layers(folder):
    facts = adapter_facts(folder)
    assert facts == {
        "type": "LORA",
        "layers": 14,
        "rank": [4],
        "scaling": [2.0],
        "dora": False,
        "initialization": "kaiming-uniform",
    }
    assert adapter_facts(folder, use_rslora=True)["scaling"] == [8 / math.sqrt(4)]
    assert adapter_facts(folder, use_dora=True)["dora"] is True
    assert adapter_facts(folder, rank_pattern={"q_proj": 2})["rank"] == [2, 4]


@pytest.mark.parametrize("name", ["gaussian", "orthogonal", "pissa", "olora", "mica"])
def test_initialization_is_told_from_the_values(folder, name):
    assert adapter_facts(folder, init_lora_weights=name)["initialization"] == name


def test_random_b_is_none_of_the_named_initializations(folder):
    assert adapter_facts(folder, init_lora_weights=False)["initialization"] == "other"


@pytest.mark.parametrize(
    "asked", [{"r": 8}, {"use_rslora": True}, {"use_dora": True}, {"lora_alpha": 16}, {"init_lora_weights": "pissa"}]
)
def test_adapter_that_is_not_what_its_label_says_fails(folder, asked):
    model = models.add_adapter(load(folder), PEFT, seed=1)
    actual = readback.describe(model)
    actual["adapter"]["initialization"] = readback.initialization(model)
    readback.check_as_asked(actual, "fp32", None, PEFT)
    with pytest.raises(ArmFailed, match="asked for adapter"):
        readback.check_as_asked(actual, "fp32", None, PEFT | asked)
    with pytest.raises(ArmFailed, match="asked for adapter None"):
        readback.check_as_asked(actual, "fp32", None, None)


def test_8_bit_layers_are_read_back(folder):
    actual = readback.describe(load(folder, {"load_in_8bit": True}))
    assert actual["quantization"]["type"] == "int8" and actual["quantization"]["layers"] == 14
    assert actual["quantization"]["outlier_threshold"] == 6.0
    # One byte a weight, a float a row, and embedding, output and norms as they were.
    assert actual["base_bytes"] == LINEAR + 4 * OUTPUTS + 4 * (WHOLE - LINEAR)
    readback.check_as_asked(actual, "fp32", {"load_in_8bit": True})
    with pytest.raises(ArmFailed, match="asked for quantization"):
        readback.check_as_asked(actual, "fp32", NF4)
    with pytest.raises(ArmFailed, match="asked for quantization"):
        readback.check_as_asked(readback.describe(load(folder)), "fp32", {"load_in_8bit": True})


def test_loraplus_gives_the_b_matrices_another_learning_rate(folder, tmp_path):
    record = read_json(train(folder, tmp_path, with_method(loraplus_lr_ratio=16.0)) / "training.json")
    groups = {tuple(group["of"]): group for group in record["optimizer"]["groups"]}
    assert groups[("lora_A",)]["learning_rate"] == 1e-2 and groups[("lora_B",)]["learning_rate"] == 0.16
    readback.check_optimizer(record["optimizer"]["groups"], 1e-2, 16.0)
    with pytest.raises(ArmFailed, match=r"learning rate of 0\.01, but the optimizer has 0\.16 for lora_B"):
        readback.check_optimizer(record["optimizer"]["groups"], 1e-2, None)
    mixed = [{"of": ["lora_A", "lora_B"], "learning_rate": 1e-2, "weight_decay": 0.0, "parameters": 1}]
    readback.check_optimizer(mixed, 1e-2, None)
    with pytest.raises(ArmFailed, match="lora_A, lora_B"):
        readback.check_optimizer(mixed, 1e-2, 16.0)


def test_loraplus_gives_dora_s_magnitudes_the_rate_of_the_b_matrices(folder, tmp_path):
    method = with_method(peft=PEFT | {"use_dora": True}, loraplus_lr_ratio=16.0)
    groups = read_json(train(folder, tmp_path, method) / "training.json")["optimizer"]["groups"]
    assert [(group["of"], group["learning_rate"]) for group in groups] == [
        (["lora_A"], 1e-2),
        (["lora_B", "other"], 0.16),
    ]


def test_adapter_on_the_head_is_refused(folder):
    with pytest.raises(ArmFailed, match="target_modules names the model's head"):
        models.add_adapter(load(folder), PEFT | {"target_modules": ["q_proj", "lm_head"]}, seed=1)


def test_loraplus_that_nothing_read_fails(folder, tmp_path, monkeypatch):
    monkeypatch.delattr(AdapterTrainer, "create_optimizer")
    with pytest.raises(ArmFailed, match="the optimizer has"):
        train(folder, tmp_path, with_method(loraplus_lr_ratio=16.0))


def test_training_that_changes_nothing_fails(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, closure=None: None)
    with pytest.raises(ArmFailed, match="changed no value"):
        train(folder, tmp_path, changed(epochs=1))


def test_adapter_that_the_model_cannot_take_fails_in_one_line(folder, tmp_path):
    with pytest.raises(ArmFailed, match=r"PEFT cannot put this LORA adapter on the model: .*no_such_layer"):
        train(folder, tmp_path, with_method(peft=PEFT | {"target_modules": ["no_such_layer"]}))


# What is loaded and saved


@pytest.mark.parametrize("quantization, is_mapped", [(None, True), (NF4, False), ({"load_in_8bit": True}, False)])
def test_quantized_base_does_not_hold_the_file_in_memory(folder, tmp_path, quantization, is_mapped):
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("this system does not list what is mapped")
    shutil.copytree(folder / "model", tmp_path / "model")
    base = load(tmp_path, quantization)
    assert (str(tmp_path / "model/model.safetensors") in maps.read_text()) is is_mapped
    assert base.model.norm.weight.dtype == torch.float32


@pytest.mark.parametrize("name", ["lora", "qlora"])
def test_adapter_in_bf16_answers_when_reloaded_as_it_did_in_memory(folder, tmp_path, name):
    out = evaluate(folder, train(folder, tmp_path, settings_of(name, precision="bf16")))
    actual = read_json(out / "training.json")["actual"]
    assert (actual["base_dtype"], actual["adapter_dtype"]) == ("bf16", "fp32")


@pytest.mark.parametrize("engine", ["shared-prefix", "plain"])
def test_full_fine_tuning_in_bf16_updates_fp32_weights_and_saves_bf16(folder, tmp_path, engine):
    out = evaluate(folder, train(folder, tmp_path, settings_of("full", precision="bf16", engine=engine)))
    assert read_json(out / "training.json")["actual"]["base_dtype"] == "fp32"
    assert {tensor.dtype for tensor in toy.adapter_of(out).values()} == {torch.bfloat16}
    assert read_json(out / "adapter/adapter_config.json")["full"] is True


def test_full_model_of_another_shape_fails(folder, tmp_path):
    model = load(folder)
    tokenizer = models.load_tokenizer(folder / "model")
    models.save_adapter(model, tokenizer, tmp_path / "adapter")
    assert load_file(tmp_path / "adapter/adapter_model.safetensors").keys() == dict(model.named_parameters()).keys()
    models.reload_adapter(load(folder), tmp_path / "adapter", tokenizer)
    other = load(folder)
    other.model.norm.weight = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(ArmFailed, match=r"model\.norm\.weight is \[64\], but the model's \[3\]"):
        models.reload_adapter(other, tmp_path / "adapter", tokenizer)


def test_adapter_is_saved_byte_for_byte_alike(folder, tmp_path):
    """Also where PEFT keeps names in a set, whose order another process has otherwise."""
    tokenizer = models.load_tokenizer(folder / "model")
    names = ["q_proj", "k_proj", "v_proj", "o_proj", "up_proj", "down_proj", "gate_proj"]
    for place, order in (("one", names), ("two", names[::-1])):
        model = models.add_adapter(load(folder), PEFT | {"target_modules": order}, seed=1)
        models.save_adapter(model, tokenizer, tmp_path / place)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert "adapter_config.json" in files
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    assert read_json(tmp_path / "one/adapter_config.json")["target_modules"] == sorted(names)


@pytest.mark.parametrize("name", ["full", "prompt-tuning", "loraplus"])
def test_method_resumes_as_if_it_was_not_interrupted(folder, tmp_path, monkeypatch, name):
    class Killed(BaseException):
        pass

    settings = settings_of(name, epochs=4, evaluations_per_epoch=2)
    whole = train(folder, tmp_path / "whole", settings)
    step = AdapterTrainer.training_step

    def killing(self, *args, **kwargs):
        if self.state.global_step == 13:
            raise Killed
        return step(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(AdapterTrainer, "training_step", killing)
        with pytest.raises(Killed):
            train(folder, tmp_path / "killed", settings)
    assert any((tmp_path / "killed/checkpoints").glob("checkpoint-*"))
    resumed = train(folder, tmp_path / "killed", settings)
    for key, tensor in toy.adapter_of(whole).items():
        assert torch.equal(tensor, toy.adapter_of(resumed)[key]), key


# What the configuration refuses


def refused(**method) -> str:
    override = {"methods": {"mine": {"description": "Mine"} | method}}
    with pytest.raises(ConfigurationError) as error:
        load_configuration(ROOT, [("--config", json.loads(json.dumps(override)))])
    [line] = error.value.lines
    return line


LORA = {"peft_type": "LORA"}


@pytest.mark.parametrize(
    "method, message",
    [
        ({"full": True, "quantization": NF4}, "quantized weights cannot be trained"),
        ({"full": True, "peft": LORA}, "exactly one of peft, full: true and baseline"),
        ({"full": False}, "exactly one of peft, full: true and baseline"),
        ({"peft": LORA | {"init_lora_weights": "pissa"}, "quantization": NF4}, "pissa decomposes plain weights"),
        ({"peft": LORA | {"init_lora_weights": "pissa_niter_4"}}, "pissa_niter_4 is not offered: its random"),
        ({"peft": LORA | {"init_lora_weights": "eva"}}, "eva is not offered: it needs a pass over data"),
        ({"peft": LORA | {"init_lora_weights": "loftq"}}, "loftq is not offered"),
        ({"peft": {"peft_type": "IA3"}, "loraplus_lr_ratio": 16}, "loraplus_lr_ratio goes with a peft of type LORA"),
        ({"peft": LORA, "loraplus_lr_ratio": 0.5}, "loraplus_lr_ratio"),
        ({"baseline": "few-shot"}, "shots and baseline: few-shot go together"),
        ({"baseline": "zero-shot", "shots": 2}, "shots and baseline: few-shot go together"),
        ({"baseline": "few-shot", "shots": 0}, "shots"),
        ({"baseline": "zero-shot", "learning_rate": 0.1}, "learning_rate goes with peft and full"),
        ({"peft": LORA, "quantization": {"load_in_8bit": True, "bnb_4bit_quant_type": "nf4"}}, "remove it"),
        ({"peft": LORA, "quantization": {"load_in_8bit": True, "load_in_4bit": True}}, "set one of load_in_4bit"),
        ({"peft": LORA, "quantization": {"load_in_4bit": False}}, "leave the whole section out"),
        ({"peft": {"peft_type": "PROMPT_TUNING", "prompt_tuning_init": "SAMPLE"}}, "one of TEXT, SAMPLE_VOCAB, RANDOM"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(method, message):
    line = refused(**method)
    assert line.startswith("--config: methods.mine") and message in line
