"""Loading models and adapters, and reading back what was really loaded."""

import hashlib
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_config, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.utils import logging as transformers_logging

from reprolora.errors import ArmFailed, UserError
from reprolora.files import read_json
from reprolora.precision import TYPES

NAMES = {dtype: name for name, dtype in TYPES.items()}


def model_folder(manifest: str | Path) -> Path:
    """The folder that `manifest` stands for, after a check that its files are there and whole in size.

    Raises:
        UserError: a file is missing or has another size.
    """
    folder = Path(manifest).parent
    for name, facts in read_json(manifest)["files"].items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != facts["size"]:
            problem = "has another size than" if path.is_file() else "is missing, but"
            raise UserError(f"{path}: {problem} {manifest} says; delete the manifest and run again to fetch the model")
    return folder


def quiet_libraries() -> None:
    """Keep out of the log what the libraries say to their own developers, and progress bars where nobody watches."""
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers|trl|peft")
    transformers_logging.set_verbosity_error()
    if not sys.stderr.isatty():
        transformers_logging.disable_progress_bar()


def load_tokenizer(folder: str | Path) -> PreTrainedTokenizerBase:
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_base(
    folder: str | Path, precision: str, device: torch.device, quantization: Mapping[str, Any] | None = None
) -> PreTrainedModel:
    """Load a base model for `precision` (fp32, bf16, fp16), quantized by bitsandbytes when `quantization` says how.

    The weights are memory-mapped; a quantized model is quantized tensor by tensor as they are read.

    Raises:
        ArmFailed: quantization was asked for and cannot be had here.
    """
    dtype = TYPES[precision]
    options: dict[str, Any] = {}
    if quantization:
        _require_bitsandbytes()
        options["quantization_config"] = BitsAndBytesConfig(**quantization, bnb_4bit_compute_dtype=dtype)
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, device_map={"": device}, local_files_only=True, **options
    )


def _require_bitsandbytes() -> None:
    try:
        from bitsandbytes.cextension import ErrorHandlerMockBNBNativeLibrary, lib
    except ImportError as error:
        raise ArmFailed(f"bitsandbytes cannot be imported ({error}); install it to train this arm") from error
    if isinstance(lib, ErrorHandlerMockBNBNativeLibrary):
        raise ArmFailed(
            "bitsandbytes has no library for this machine (see `python -m bitsandbytes`); install a build for it"
        )


def add_adapter(base: PreTrainedModel, peft: Mapping[str, Any], seed: int) -> PeftModel:
    """Put a new adapter on `base`; its first values depend on `seed` and nothing else."""
    set_seed(seed)
    return get_peft_model(base, get_peft_config({"task_type": "CAUSAL_LM", **peft}))


def reload_adapter(base: PreTrainedModel, adapter: str | Path, tokenizer: PreTrainedTokenizerBase) -> PeftModel:
    """Put a saved adapter on `base`, and make sure that all of it arrived.

    Raises:
        ArmFailed: the file and the model do not have the same tensors; a tensor is empty; a `lora_B` was never
            trained; or the adapter was trained with another vocabulary.
    """
    adapter = Path(adapter)
    saved = AutoTokenizer.from_pretrained(adapter, local_files_only=True)
    if saved.get_vocab() != tokenizer.get_vocab():
        raise ArmFailed(
            f"{adapter}: trained with a tokenizer of {len(saved)} tokens that is not the base model's "
            f"({len(tokenizer)} tokens); train again on this base"
        )
    tensors = load_file(adapter / "adapter_model.safetensors")
    model = PeftModel.from_pretrained(base, adapter, local_files_only=True)
    expected = get_peft_model_state_dict(model)
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unknown:
        raise ArmFailed(
            f"{adapter}/adapter_model.safetensors: {len(missing)} tensors are missing ({_some(missing)}) and "
            f"{len(unknown)} belong to no layer ({_some(unknown)}); train again"
        )
    empty = [name for name, tensor in tensors.items() if not tensor.numel()]
    untrained = [name for name, tensor in tensors.items() if "lora_B" in name and tensor.numel() and not tensor.any()]
    if empty or untrained:
        raise ArmFailed(
            f"{adapter}/adapter_model.safetensors: tensors that are empty ({_some(empty)}) or all zero, so never "
            f"trained ({_some(untrained)})"
        )
    for name, tensor in tensors.items():
        if not torch.equal(expected[name].cpu(), tensor.to(expected[name].dtype)):
            raise ArmFailed(f"{adapter}/adapter_model.safetensors: {name} did not load as it was saved")
    return model


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "") if names else "none"


def describe(model: PreTrainedModel | PeftModel) -> dict[str, Any]:
    """What was really loaded, read from the layers: types, quantization, attention, parameter counts.

    `base_bytes` is the memory that the base model's weights and quantization constants take.
    """
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    # By the module's home, since PEFT's wrapper of such a layer has the same class name.
    quantized = [m for m in base.modules() if type(m).__name__ == "Linear4bit" and "bitsandbytes" in type(m).__module__]
    adapted = isinstance(model, PeftModel)
    trainable = [parameter for parameter in model.parameters() if adapted and parameter.requires_grad]
    frozen = [parameter for parameter in base.parameters() if not (adapted and parameter.requires_grad)]
    plain = {NAMES.get(p.dtype, str(p.dtype)) for p in frozen if p.dtype.is_floating_point}
    return {
        "base_dtype": "+".join(sorted(plain)),
        "adapter_dtype": "+".join(sorted({NAMES.get(p.dtype, str(p.dtype)) for p in trainable})) or None,
        "compute_dtype": NAMES.get(quantized[0].compute_dtype) if quantized else None,
        "quantization": _describe_quantization(quantized),
        "attention": base.config._attn_implementation,
        "trainable_parameters": sum(parameter.numel() for parameter in trainable),
        "base_parameters": base.num_parameters() - sum(parameter.numel() for parameter in trainable),
        "base_bytes": sum(_bytes(parameter) for parameter in frozen),
    }


def _describe_quantization(layers: list[torch.nn.Module]) -> dict[str, Any] | None:
    if not layers:
        return None
    import bitsandbytes

    states = [layer.weight.quant_state for layer in layers]
    facts = {(state.quant_type, bool(state.nested), state.blocksize) for state in states}
    if len(facts) > 1:
        raise ArmFailed(f"the quantized layers do not agree with each other: {sorted(facts)}")
    quant_type, nested, block_size = facts.pop()
    return {
        "type": quant_type,
        "double_quantization": nested,
        "block_size": block_size,
        "layers": len(layers),
        "backend": f"bitsandbytes {bitsandbytes.__version__} on {layers[0].weight.device.type}",
    }


def _bytes(parameter: torch.nn.Parameter) -> int:
    size = parameter.numel() * parameter.element_size()
    state = getattr(parameter, "quant_state", None)
    if state is not None:
        size += state.absmax.numel() * state.absmax.element_size()
        if state.nested:
            size += state.state2.absmax.numel() * state.state2.absmax.element_size()
    return size


def check_as_asked(actual: Mapping[str, Any], precision: str, quantization: Mapping[str, Any] | None) -> None:
    """Compare what was loaded with what the arm's label says.

    Raises:
        ArmFailed: names what differs.
    """
    asked: dict[str, Any] = {"base_dtype": precision, "quantization": None}
    found = {"base_dtype": actual["base_dtype"], "quantization": None}
    if quantization:
        asked["quantization"] = {
            "type": quantization["bnb_4bit_quant_type"],
            "double_quantization": quantization["bnb_4bit_use_double_quant"],
        }
    if actual["quantization"]:
        found["quantization"] = {key: actual["quantization"][key] for key in ("type", "double_quantization")}
    for key, value in asked.items():
        if found[key] != value:
            raise ArmFailed(f"asked for {key} {value}, but the loaded model has {found[key]}")


def adapter_sha256(model: PeftModel) -> str:
    """Fingerprint of the adapter's values, whatever file they are written to."""
    digest = hashlib.sha256()
    for name, tensor in sorted(get_peft_model_state_dict(model).items()):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()
