"""Writing a model folder as a GGUF file, for llama.cpp and what is built on it.

The names of tensors, keys and types are those of the `gguf` library; what a file must hold beyond them is set by the
programs that read it. A model is written whole or not at all: an architecture, a tokenizer or a position encoding that
is not here is refused by name, since a file that leaves something out would load all the same and answer otherwise.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors import safe_open
from tokenizers import Regex, pre_tokenizers
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from reprolora.errors import UserError
from reprolora.files import replacing
from reprolora.gguf_models import smollm_pre_tokenizer

ARCHITECTURES = ("llama", "qwen2", "qwen3")
TYPES = {
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}


def write_gguf(folder: Path, output: Path, type_: str, name: str) -> None:
    """Write the model in `folder` to the file `output`; `type_` is that of the matrices, vectors are float32.

    Raises:
        UserError: the model cannot be written whole; says what of it.
    """
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    _check_architecture(config, folder)
    with replacing(output) as temporary:
        writer = gguf.GGUFWriter(temporary, config.model_type)
        writer.add_type(gguf.GGUFType.MODEL)
        writer.add_name(name)
        writer.add_file_type(TYPES[type_][1])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        _add_hyperparameters(writer, config)
        _add_tokenizer(writer, tokenizer, config.vocab_size, folder)
        tensors = dict(_gguf_names(folder, config))
        kinds = {hf_name: _kind(shape, type_) for hf_name, (_, shape) in tensors.items()}
        for hf_name, (gguf_name, shape) in tensors.items():
            kind = kinds[hf_name]
            bytes_of = gguf.quant_shape_to_byte_shape(shape, kind)
            writer.add_tensor_info(gguf_name, bytes_of, np.dtype(np.uint8), int(np.prod(bytes_of)), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for hf_name, values in _values(folder, list(tensors)):
            if ".q_proj." in hf_name or ".k_proj." in hf_name:
                heads = config.num_attention_heads if ".q_proj." in hf_name else config.num_key_value_heads
                values = _for_rope(values, heads) if config.model_type == "llama" else values
            with np.errstate(over="ignore"):  # refused below
                data = gguf.quantize(values, kinds[hf_name])
            if not np.isfinite(values if data.dtype == np.uint8 else data).all():
                raise UserError(f"{folder}: {hf_name} has values that {type_} cannot hold; use another type")
            writer.write_tensor_data(data)
        writer.close()


def _check_architecture(config: PretrainedConfig, folder: Path) -> None:
    if config.model_type not in ARCHITECTURES:
        raise UserError(
            f"{folder}: models of type {config.model_type!r} are not written as GGUF, only {', '.join(ARCHITECTURES)}; "
            "convert the merged model with llama.cpp's own script, or set export.gguf to null"
        )
    rope = config.rope_parameters["rope_type"]
    # None of these has a key, so that a reader would take the model for one without.
    parts = {
        f"a position encoding of type {rope!r}": rope != "default",
        "sliding-window attention": "sliding_attention" in (getattr(config, "layer_types", None) or []),
        "biases": getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False),
    }
    for part, has in parts.items():
        if has:
            raise UserError(
                f"{folder}: a {config.model_type} model with {part} is not written as GGUF; convert the merged model "
                "with llama.cpp's own script, or set export.gguf to null"
            )


def _add_hyperparameters(writer: gguf.GGUFWriter, config: PretrainedConfig) -> None:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


# Tensors


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _gguf_names(folder: Path, config: PretrainedConfig) -> Iterator[tuple[str, tuple[str, list[int]]]]:
    """Each tensor's name, with its name in a GGUF file and its shape, in the order in which they are read."""
    [architecture] = [key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == config.model_type]
    names = gguf.get_tensor_name_map(architecture, config.num_hidden_layers)
    for file in _weights(folder):
        with safe_open(file, "pt") as tensors:
            for hf_name in tensors.keys():  # noqa: SIM118
                stem, _, end = hf_name.rpartition(".")
                gguf_name = names.get_name(stem)
                if gguf_name is None:
                    raise UserError(f"{file}: GGUF has no name for {hf_name} in a {config.model_type} model")
                yield hf_name, (f"{gguf_name}.{end}", tensors.get_slice(hf_name).get_shape())


def _values(folder: Path, names: list[str]) -> Iterator[tuple[str, np.ndarray]]:
    """The tensors in float32, one at a time, since a model may be larger than the memory."""
    waiting = iter(names)
    for file in _weights(folder):
        with safe_open(file, "pt") as tensors:
            for _ in range(len(tensors.keys())):
                name = next(waiting)
                yield name, tensors.get_tensor(name).float().numpy()


def _kind(shape: list[int], type_: str) -> gguf.GGMLQuantizationType:
    """How a tensor is stored: vectors in float32; a matrix whose rows are no whole blocks, in float16."""
    if len(shape) == 1:
        return gguf.GGMLQuantizationType.F32
    kind = TYPES[type_][0]
    block, _ = gguf.GGML_QUANT_SIZES[kind]
    return gguf.GGMLQuantizationType.F16 if shape[-1] % block else kind


def _for_rope(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of the query or key projection, [heads * head_dim, ...], as llama.cpp rotates them.

    Transformers rotates the first half of a head's dimensions against the second; llama.cpp, for this architecture,
    each even one against the odd one after it. So dimension i of a half becomes 2 i, or 2 i + 1.
    """
    halves = values.reshape(heads, 2, -1, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


# Tokenizer


def _add_tokenizer(writer: gguf.GGUFWriter, tokenizer: PreTrainedTokenizerBase, size: int, folder: Path) -> None:
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    model = described["model"]
    if model["type"] != "BPE" or described["decoder"]["type"] != "ByteLevel":
        raise UserError(
            f"{folder}: only byte-level BPE tokenizers are written as GGUF, not this {model['type']}; convert the "
            "merged model with llama.cpp's own script, or set export.gguf to null"
        )
    tokens = [f"[PAD{position}]" for position in range(size)]  # more rows than tokens is usual, for even sizes
    types = [gguf.TokenType.UNUSED] * size
    for token, position in tokenizer.get_vocab().items():
        tokens[position], types[position] = token, gguf.TokenType.NORMAL
    for position, added in tokenizer.added_tokens_decoder.items():
        types[position] = gguf.TokenType.CONTROL if added.special else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(_pre_tokenizer_name(described, folder))
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    for role in ("bos", "eos", "unk", "pad"):
        position = getattr(tokenizer, f"{role}_token_id")
        if position is not None:
            getattr(writer, f"add_{role}_token_id")(position)
    writer.add_add_bos_token(tokenizer("x").input_ids[0] == tokenizer.bos_token_id)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _pre_tokenizer_name(described: dict[str, Any], folder: Path) -> str:
    """What GGUF calls the rules by which this tokenizer cuts a text before it merges bytes.

    A GGUF file has their name only. NFC is let pass before them: llama.cpp has no normalization, and texts are
    practically always in that form already.
    """
    rules = {"gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False), "smollm": smollm_pre_tokenizer()}
    for name in ("llama-bpe", "qwen2"):
        split = pre_tokenizers.Split(Regex(GGUF_PRE_TOKENIZER_SPLITS[name]), behavior="isolated")
        bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        rules[name] = pre_tokenizers.Sequence([split, bytes_])
    own = _without_offsets(described["pre_tokenizer"])
    normalizer = (described["normalizer"] or {}).get("type")
    for name, rule in rules.items():
        if own == _without_offsets(json.loads(rule.__getstate__())) and normalizer in (None, "NFC"):
            return name
    raise UserError(
        f"{folder}: GGUF's name for this tokenizer's pre-tokenizer is not known (known are {', '.join(rules)}); "
        "convert the merged model with llama.cpp's own script, or set export.gguf to null"
    )


def _without_offsets(rule: Any) -> Any:
    """A pre-tokenizer's description without what decides only to which letters a token is said to belong."""
    if isinstance(rule, dict):
        return {key: _without_offsets(value) for key, value in rule.items() if key != "trim_offsets"}
    return [_without_offsets(inner) for inner in rule] if isinstance(rule, list) else rule
