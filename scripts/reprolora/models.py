"""Loading models, putting adapters on them, saving and reloading those."""

import hashlib
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import PeftConfig, PeftModel, get_peft_config, get_peft_model, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import load_file, save_file
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
from reprolora.files import read_json, write_json
from reprolora.precision import TYPES


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

    The weights are memory-mapped; a quantized model is quantized tensor by tensor as they are read. No parameter asks
    for a gradient yet.

    Raises:
        ArmFailed: quantization was asked for and cannot be had here.
    """
    dtype = TYPES[precision]
    options: dict[str, Any] = {}
    if quantization:
        _require_bitsandbytes()
        said = {key: value for key, value in quantization.items() if value is not None}
        options["quantization_config"] = BitsAndBytesConfig(**said, bnb_4bit_compute_dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=dtype, device_map={"": device}, local_files_only=True, **options
    )
    if quantization:
        # What was not quantized (norms, embedding) is a part of the mapped file, which would stay in memory whole.
        for parameter in model.parameters():
            if parameter.dtype.is_floating_point:
                parameter.data = parameter.data.clone()
        # On a CPU with bf16 instructions such a layer would rewrite its weights in place at its first evaluation, with
        # rounded scales and for a product without gradients: a training that evaluates would learn nothing after it.
        for module in model.modules():
            if hasattr(module, "support_avx512bf16_for_cpu"):
                module.support_avx512bf16_for_cpu = False
    return model.requires_grad_(False)


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
    """Put a new adapter on `base`; its first values depend on `seed` and nothing else.

    Raises:
        ArmFailed: PEFT cannot put such an adapter on this model, or TRL cannot train it.
    """
    set_seed(seed)
    try:
        model = get_peft_model(base, get_peft_config({"task_type": "CAUSAL_LM", **peft}))
    except (ValueError, TypeError, NotImplementedError, ImportError) as error:
        raise ArmFailed(f"PEFT cannot put this {peft['peft_type']} adapter on the model: {error}") from error
    if isinstance(model.get_output_embeddings(), BaseTunerLayer):
        raise ArmFailed(
            "target_modules names the model's head, and TRL's SFTTrainer trains no adapter there; leave it out, or "
            "train the whole head with modules_to_save"
        )
    return model


def trained_tensors(model: PreTrainedModel | PeftModel) -> dict[str, torch.Tensor]:
    """What a training changes and an adapter's file holds, by name: the adapter, or all weights of a plain model."""
    return get_peft_model_state_dict(model) if isinstance(model, PeftModel) else dict(model.named_parameters())


def save_adapter(model: PreTrainedModel | PeftModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save what was trained and the tokenizer; the configuration, which stands for the folder, last.

    A model without an adapter (full fine-tuning) gets the same two files: `adapter_model.safetensors` then has all
    weights under the model's own names, and `adapter_config.json` says so by `"full": true`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as temporary:
        if isinstance(model, PeftModel):
            for config in model.peft_config.values():
                for key, value in vars(config).items():
                    if isinstance(value, set):  # written in an order that varies from one process to the next
                        setattr(config, key, sorted(value))
            model.save_pretrained(temporary)
            # PEFT's card has its headings only; write_model_card fills one in when there are scores.
            Path(temporary, "README.md").unlink()
        else:
            tensors = {name: tensor.detach().contiguous() for name, tensor in trained_tensors(model).items()}
            save_file(tensors, Path(temporary, "adapter_model.safetensors"), metadata={"format": "pt"})
            write_json(
                Path(temporary, "adapter_config.json"), {"full": True, "base_model_name_or_path": model.name_or_path}
            )
        tokenizer.save_pretrained(temporary)
        for path in sorted(Path(temporary).iterdir(), key=lambda path: path.name == "adapter_config.json"):
            path.replace(folder / path.name)


def reload_adapter(
    base: PreTrainedModel, adapter: str | Path, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel | PeftModel:
    """Put what `save_adapter` saved on `base`, and make sure that all of it arrived.

    Raises:
        ArmFailed: the file and the model do not have the same tensors; a tensor is empty; a `lora_A` or `lora_B` was
            never trained; or the adapter was trained with another vocabulary.
    """
    adapter = Path(adapter)
    file = adapter / "adapter_model.safetensors"
    saved = AutoTokenizer.from_pretrained(adapter, local_files_only=True)
    if saved.get_vocab() != tokenizer.get_vocab():
        raise ArmFailed(
            f"{adapter}: trained with a tokenizer of {len(saved)} tokens that is not the base model's "
            f"({len(tokenizer)} tokens); train again on this base"
        )
    tensors = load_file(file)
    if read_json(adapter / "adapter_config.json").get("full"):
        model = base.requires_grad_(True)
    else:
        try:
            # Trainable where PEFT can, so that what is read back from the layers is what was read back in training.
            config = PeftConfig.from_pretrained(adapter)
            trainable = not config.is_prompt_learning
            model = PeftModel.from_pretrained(base, adapter, is_trainable=trainable, local_files_only=True)
        except (RuntimeError, ValueError) as error:
            raise ArmFailed(f"{file}: PEFT cannot load it: {error}") from error
    expected = trained_tensors(model)
    missing, unknown = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unknown:
        raise ArmFailed(
            f"{file}: {len(missing)} tensors are missing ({_some(missing)}) and "
            f"{len(unknown)} belong to no layer ({_some(unknown)}); train again"
        )
    empty = [name for name, tensor in tensors.items() if not tensor.numel()]
    factors = [name for name in tensors if "lora_A" in name or "lora_B" in name]
    untrained = [name for name in factors if tensors[name].numel() and not tensors[name].any()]
    if empty or untrained:
        raise ArmFailed(
            f"{file}: tensors that are empty ({_some(empty)}) or all zero, so never trained ({_some(untrained)})"
        )
    for name, tensor in tensors.items():
        if expected[name].shape != tensor.shape:
            raise ArmFailed(f"{file}: {name} is {list(tensor.shape)}, but the model's {list(expected[name].shape)}")
        if not isinstance(model, PeftModel):
            expected[name].data.copy_(tensor)
        if not torch.equal(expected[name].cpu(), tensor.to(expected[name].dtype)):
            raise ArmFailed(f"{file}: {name} did not load as it was saved")
    return model.eval()


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "") if names else "none"


def adapter_sha256(model: PreTrainedModel | PeftModel) -> str:
    """Fingerprint of the trained values, whatever file they are written to."""
    digest = hashlib.sha256()
    for name, tensor in sorted(trained_tensors(model).items()):
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().numpy().tobytes())
    return digest.hexdigest()
