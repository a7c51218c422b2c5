"""Merging adapters, and GGUF files: the model that comes back is the one that went in."""

import json

import gguf
import numpy
import pytest
import torch
from peft import get_peft_config, get_peft_model
from safetensors.torch import load_file
from tokenizers import Regex, pre_tokenizers
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

import tiny
from reprolora.errors import ArmFailed, UserError
from reprolora.exports import TEXTS, check_tokens, load_exported
from reprolora.files import read_json, sha256_of, write_json
from reprolora.gguf_export import write_gguf
from reprolora.gguf_models import smollm_pre_tokenizer
from reprolora.merging import merge
from reprolora.model_files import GGUF_FILE, save_model, write_manifest
from reprolora.models import adapter_sha256, save_adapter
from running import contents, run_script

IDS = torch.arange(3, 63).reshape(2, 30)
# What the families need to be written: head sizes and windows as GGUF knows them.
WRITTEN = {
    "llama": {},
    "llama with wide heads": {"head_dim": 16},
    "llama with tied embeddings": {"tie_word_embeddings": True},
    "qwen2": {"use_sliding_window": False, "layer_types": None, "sliding_window": None},
    "qwen3": {"head_dim": 128},
}
# One rounding to 11 bits, or to 8; the logits' standard deviation is 0.34.
TOLERANCE = {"f16": 5e-3, "q8_0": 8e-2}


def tokenizer():
    return tiny.tokenizer(["the cat sat on the mat in 2014"] * 3)


def saved(folder, family="llama", pre_tokenizer=None, **sizes):
    """A model folder, and the model that is in it; its biases and norms are not the trivial ones of a new model."""
    model, words = tiny.model(family, **sizes), tokenizer()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))) / 4)
    if pre_tokenizer:
        words.backend_tokenizer.pre_tokenizer = pre_tokenizer
    folder.mkdir(parents=True)
    save_model(model, words, folder)
    write_manifest(folder, {})
    return model


def written(tmp_path, type_="f16"):
    folder = tmp_path / "gguf"
    folder.mkdir()
    write_gguf(tmp_path / "model", folder / GGUF_FILE, type_, "a name")
    write_json(folder / "manifest.json", {"files": {GGUF_FILE: {"size": (folder / GGUF_FILE).stat().st_size}}})
    return folder


@torch.no_grad()
def logits(model):
    return model.eval()(IDS).logits


def adapted(peft: dict, family="llama"):
    """A model with an adapter whose values are not those of a new one, which changes nothing."""
    model = get_peft_model(tiny.model(family), get_peft_config({"task_type": "CAUSAL_LM", **peft}))
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=draw) / 8)
    return model.eval()


LORA = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": "all-linear"}
ADAPTERS = {
    "lora": LORA,
    "dora": LORA | {"use_dora": True},
    "ia3": {"peft_type": "IA3", "target_modules": ["k_proj", "down_proj"], "feedforward_modules": ["down_proj"]},
    "loha": {"peft_type": "LOHA", "r": 4, "alpha": 4, "target_modules": ["q_proj"]},
}


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_merged_model_answers_as_the_adapter_does(name):
    model = adapted(ADAPTERS[name])
    before = logits(model)
    with model.disable_adapter():
        assert (logits(model) - before).abs().max() > 0.02, "the adapter does nothing"
    merged = merge(model)
    torch.testing.assert_close(logits(merged), before, atol=1e-4, rtol=1e-3)
    assert not any("lora" in key or "base_layer" in key for key in merged.state_dict())
    assert not any(parameter.requires_grad for parameter in merged.parameters())


def test_all_weights_are_merged_as_they_are():
    model = tiny.model()
    assert merge(model) is model


@pytest.mark.parametrize("kind", ["PROMPT_TUNING", "PREFIX_TUNING", "P_TUNING"])
def test_a_learned_prompt_is_no_change_of_weights(kind):
    with pytest.raises(ArmFailed, match=f"type {kind} cannot be merged: it does not change the model's weights"):
        merge(adapted({"peft_type": kind, "num_virtual_tokens": 4}))


def test_weights_that_are_no_numbers_are_not_merged():
    model = adapted(LORA)
    next(p for name, p in model.named_parameters() if "lora_A" in name).data[0, 0] = float("nan")
    with pytest.raises(ArmFailed, match="PEFT cannot merge this adapter of type LORA: NaN"):
        merge(model)


def test_an_adapter_on_a_tied_embedding_is_not_merged():
    base = tiny.model(tie_word_embeddings=True)
    peft = LORA | {"target_modules": ["lm_head", "q_proj"]}
    with pytest.warns(UserWarning, match="tie_word_embeddings"):
        model = get_peft_model(base, get_peft_config({"task_type": "CAUSAL_LM", **peft}))
    with pytest.raises(ArmFailed, match="changes weights that the model uses twice"):
        merge(model)


@pytest.mark.parametrize("type_", TOLERANCE)
@pytest.mark.parametrize("case", WRITTEN)
def test_a_gguf_file_comes_back_as_the_model(tmp_path, case, type_):
    model = saved(tmp_path / "model", case.split()[0], **WRITTEN[case])
    loaded, words = load_exported(written(tmp_path, type_) / "manifest.json", "fp32", torch.device("cpu"))
    torch.testing.assert_close(logits(loaded), logits(model), atol=TOLERANCE[type_], rtol=0)
    assert check_tokens(words, tmp_path / "model") == len(TEXTS) + 4  # a prompt, and three special tokens
    assert (words.eos_token_id, words.bos_token_id, words.pad_token_id) == (2, 1, 2)


@pytest.mark.parametrize("name", ["gpt-2", "smollm", "qwen2", "llama-bpe"])
def test_the_pre_tokenizer_is_named(tmp_path, name):
    rules = {"smollm": smollm_pre_tokenizer(), "gpt-2": None}
    if name not in rules:
        split = pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[name]), "isolated")
        rules[name] = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    saved(tmp_path / "model", pre_tokenizer=rules[name])
    reader = gguf.GGUFReader(written(tmp_path) / GGUF_FILE)
    assert reader.get_field("tokenizer.ggml.pre").contents() == name


def test_what_a_gguf_file_says(tmp_path):
    """Keys, types and names, as the GGUF specification has them; the padding of the vocabulary is marked as unused."""
    model = saved(tmp_path / "model")
    reader = gguf.GGUFReader(written(tmp_path, "q8_0") / GGUF_FILE)

    def told(key):
        return reader.get_field(key).contents()

    assert (told("general.architecture"), told("general.name"), told("general.file_type")) == ("llama", "a name", 7)
    assert (told("llama.embedding_length"), told("llama.block_count"), told("llama.context_length")) == (32, 2, 512)
    assert (told("llama.attention.head_count"), told("llama.attention.head_count_kv")) == (4, 2)
    tokens, types, words = told("tokenizer.ggml.tokens"), told("tokenizer.ggml.token_type"), tokenizer()
    assert len(tokens) == len(types) == told("llama.vocab_size") == 384
    assert types[:4] == [3, 3, 3, 1] and tokens[:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert set(types[len(words) :]) == {5} and len(words) < 384
    assert told("tokenizer.ggml.merges")[0].split(" ") == list(
        json.loads(words.backend_tokenizer.to_str())["model"]["merges"][0]
    )
    assert told("tokenizer.chat_template") == words.chat_template
    assert told("tokenizer.ggml.eos_token_id") == 2 and told("tokenizer.ggml.add_bos_token") is False
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    assert tensors["blk.1.ffn_norm.weight"].tensor_type.name == "F32"
    assert tensors["blk.1.ffn_up.weight"].tensor_type.name == "Q8_0"
    # Rows of 48 values are no whole blocks of 32.
    assert tensors["blk.1.ffn_down.weight"].tensor_type.name == "F16"
    # The second row of a head of 8 dimensions is the first of its second half.
    query = model.model.layers[0].self_attn.q_proj.weight.detach().numpy()
    stored = gguf.dequantize(tensors["blk.0.attn_q.weight"].data, tensors["blk.0.attn_q.weight"].tensor_type)
    numpy.testing.assert_allclose(stored[:4], query[[0, 4, 1, 5]], atol=0.01)


@pytest.mark.parametrize(
    ("family", "changes", "message"),
    [
        ("mistral", {}, "models of type 'mistral' are not written as GGUF, only llama, qwen2, qwen3"),
        ("gemma", {}, "models of type 'gemma'"),
        ("qwen2", {}, "a qwen2 model with sliding-window attention is not written"),
        ("llama", {"attention_bias": True}, "a llama model with biases is not written"),
        (
            "llama",
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}},
            "position encoding of type 'linear'",
        ),
    ],
)
def test_a_model_that_cannot_be_written_whole(tmp_path, family, changes, message):
    saved(tmp_path / "model", family, **changes)
    with pytest.raises(UserError, match=message):
        written(tmp_path)
    assert not (tmp_path / "gguf" / GGUF_FILE).exists()


def test_a_pre_tokenizer_without_a_name(tmp_path):
    saved(tmp_path / "model", pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Whitespace()]))
    with pytest.raises(UserError, match="pre-tokenizer is not known"):
        written(tmp_path)


def test_values_too_large_for_float16(tmp_path):
    model = saved(tmp_path / "model")
    model.model.layers[1].mlp.up_proj.weight.data[0, 0] = 1e5
    save_model(model, tokenizer(), tmp_path / "model")
    with pytest.raises(UserError, match=r"layers.1.mlp.up_proj.weight has values that f16 cannot hold"):
        written(tmp_path)
    assert not (tmp_path / "gguf" / GGUF_FILE).exists()


def test_another_tokenizer_is_noticed(tmp_path):
    saved(tmp_path / "model")
    with pytest.raises(ArmFailed, match="cuts 'Somehow"):
        check_tokens(tiny.tokenizer(), tmp_path / "model")
    other = tokenizer()
    other.chat_template = other.chat_template.replace("<|im_end|>", "")
    with pytest.raises(ArmFailed, match="the chat template is not that of"):
        check_tokens(other, tmp_path / "model")


def adapter_folder(tmp_path, peft, **method):
    """What a training leaves, of an adapter with random values."""
    saved(tmp_path / "base")
    model = adapted(peft)
    save_adapter(model, tokenizer(), tmp_path / "arm/adapter")
    training = {
        "precision": {"chosen": "fp32"},
        "adapter_sha256": adapter_sha256(model),
        "settings": {"method": {"peft": peft, "full": False, "quantization": None} | method},
    }
    write_json(tmp_path / "arm/training.json", training)
    return [
        *("--model", tmp_path / "base/manifest.json"),
        *("--adapter-config", tmp_path / "arm/adapter/adapter_config.json"),
        *("--training", tmp_path / "arm/training.json"),
        *("--settings", {"arm": {"method": "lora"}}),
        *("--manifest", tmp_path / "merged/manifest.json"),
    ]


def test_an_adapter_of_a_quantized_base_is_merged_into_the_plain_one(tmp_path):
    """Every merged matrix is W + (alpha / r) B A, with the W of the model as it was fetched."""
    nf4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    done = run_script("merge_adapter", *adapter_folder(tmp_path, LORA, quantization=nf4))
    assert done.returncode == 0, done.stderr
    base, merged = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "merged"))
    factors = load_file(tmp_path / "arm/adapter/adapter_model.safetensors")
    assert merged.keys() == base.keys()
    for name, weight in base.items():
        key = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{key}.lora_A.weight" in factors:
            weight = weight + 2 * factors[f"{key}.lora_B.weight"] @ factors[f"{key}.lora_A.weight"]
        torch.testing.assert_close(merged[name], weight, msg=name)
    manifest = read_json(tmp_path / "merged/manifest.json")
    assert manifest["trained"]["quantization"] == nf4
    assert manifest["base"]["model.safetensors"] == sha256_of(tmp_path / "base/model.safetensors")
    for name, facts in manifest["files"].items():
        assert facts["sha256"] == sha256_of(tmp_path / "merged" / name)
    assert set(contents(tmp_path / "merged")) == {*manifest["files"], "manifest.json"}
    assert {"config.json", "tokenizer.json", "chat_template.jinja"} < manifest["files"].keys()
    assert not list(tmp_path.glob(".*")), "something half-made is left"


def test_a_prompt_leaves_no_merged_model(tmp_path):
    peft = {"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 4}
    done = run_script("merge_adapter", *adapter_folder(tmp_path, peft))
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: an adapter of type PROMPT_TUNING cannot be merged")
    assert not (tmp_path / "merged").exists()
