"""What was really loaded and put on it, read from the layers, and its comparison with what was asked for."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from peft import PeftModel, get_peft_config
from peft.tuners.lora import LoraLayer
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import PreTrainedModel

from reprolora.errors import ArmFailed
from reprolora.models import trained_tensors
from reprolora.precision import TYPES

NAMES = {dtype: name for name, dtype in TYPES.items()}
# What PEFT's `init_lora_weights` makes, where `initialization` can tell; `false` stands for any random values.
INITIALIZATIONS = {True: "kaiming-uniform"} | {
    name: name for name in ("gaussian", "orthogonal", "pissa", "olora", "mica")
}
# How far a Gram matrix may be from what an initialisation gives it: the rounding of bf16.
GRAM_TOLERANCE = 1e-2
# The fourth moment of a uniform distribution is 1.8 squared variances, that of a normal one 3.
BETWEEN_UNIFORM_AND_NORMAL = 2.4


def describe(model: PreTrainedModel | PeftModel) -> dict[str, Any]:
    """What was really loaded, read from the layers: types, quantization, adapter, attention, parameter counts.

    `base_parameters` counts those that are not trained; `base_bytes` is the memory that the base model's weights and
    quantization constants take.
    """
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    adapter = trainable if isinstance(model, PeftModel) else []
    ours = {id(parameter) for parameter in adapter}
    weights = [parameter for parameter in base.parameters() if id(parameter) not in ours]
    quantized = _quantized_layers(base)
    trained_in_base = sum(p.numel() for p in base.parameters() if p.requires_grad)
    return {
        "base_dtype": _types(weights),
        "adapter_dtype": _types(adapter) or None,
        "compute_dtype": NAMES.get(getattr(quantized[0], "compute_dtype", None)) if quantized else None,
        "quantization": _describe_quantization(quantized),
        "adapter": _describe_adapter(model) if isinstance(model, PeftModel) else None,
        "attention": base.config._attn_implementation,
        "trainable_parameters": sum(parameter.numel() for parameter in trainable),
        "base_parameters": base.num_parameters() - trained_in_base,
        "base_bytes": sum(map(_bytes, weights)) + sum(_constant_bytes(layer) for layer in quantized),
    }


def _types(parameters: Sequence[torch.nn.Parameter]) -> str:
    return "+".join(sorted({NAMES.get(p.dtype, str(p.dtype)) for p in parameters if p.dtype.is_floating_point}))


def _quantized_layers(base: PreTrainedModel) -> list[torch.nn.Module]:
    # By the module's home, since PEFT's wrappers of such layers have the same class names.
    kinds = ("Linear4bit", "Linear8bitLt")
    return [m for m in base.modules() if type(m).__name__ in kinds and "bitsandbytes" in type(m).__module__]


def _describe_quantization(layers: list[torch.nn.Module]) -> dict[str, Any] | None:
    if not layers:
        return None
    import bitsandbytes

    facts = [_facts_of_8_bits(x) if type(x).__name__ == "Linear8bitLt" else _facts_of_4_bits(x) for x in layers]
    if any(fact != facts[0] for fact in facts):
        differing = next(fact for fact in facts if fact != facts[0])
        raise ArmFailed(f"the quantized layers do not agree with each other: {facts[0]} and {differing}")
    return {
        **facts[0],
        "layers": len(layers),
        "backend": f"bitsandbytes {bitsandbytes.__version__} on {layers[0].weight.device.type}",
    }


def _facts_of_4_bits(layer: torch.nn.Module) -> dict[str, Any]:
    state = layer.weight.quant_state
    return {
        "type": state.quant_type,
        "double_quantization": bool(state.nested),
        "block_size": state.blocksize,
        "outlier_threshold": None,
    }


def _facts_of_8_bits(layer: torch.nn.Module) -> dict[str, Any]:
    return {
        "type": str(layer.weight.dtype).removeprefix("torch."),
        "double_quantization": False,
        "block_size": None,  # one constant for each row of the weight
        "outlier_threshold": layer.state.threshold,
    }


def _constant_bytes(layer: torch.nn.Module) -> int:
    """The memory of a layer's quantization constants."""
    if type(layer).__name__ == "Linear8bitLt":
        # They move from the weight to the layer's state in the first pass.
        constants = [layer.weight.SCB if layer.state.SCB is None else layer.state.SCB]
    else:
        state = layer.weight.quant_state
        constants = [state.absmax, *([state.state2.absmax] if state.nested else [])]
    return sum(map(_bytes, constants))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _describe_adapter(model: PeftModel) -> dict[str, Any]:
    config = model.active_peft_config
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    facts: dict[str, Any] = {"type": config.peft_type.value, "layers": len(layers)}
    if config.is_prompt_learning:
        facts["virtual_tokens"] = next(iter(trained_tensors(model).values())).shape[0]
    elif lora := _lora_layers(model):
        [name] = model.active_adapters
        facts |= {
            "rank": sorted({layer.lora_A[name].weight.shape[0] for layer in lora}),
            "scaling": sorted({layer.scaling[name] for layer in lora}),
            "dora": all(name in layer.lora_magnitude_vector for layer in lora),
        }
    return facts


def _lora_layers(model: PeftModel) -> list[torch.nn.Module]:
    [name] = model.active_adapters
    return [module for module in model.modules() if isinstance(module, LoraLayer) and name in module.lora_A]


def initialization(model: PreTrainedModel | PeftModel) -> str | None:
    """How the values of a new LoRA adapter were made, told from the values themselves; None for other adapters.

    Each of PEFT's initialisations leaves its mark on A [r, in] and B [out, r]: B is zero (and A uniform, or normal); or
    `A A^T` and `B^T B` are the same diagonal matrix, of singular values (PiSSA); or the columns of B are orthonormal
    (OLoRA; MiCA too, with A zero); or B A is zero though neither is (orthogonal).
    """
    if not isinstance(model, PeftModel) or not (layers := _lora_layers(model)):
        return None
    [name] = model.active_adapters
    factors = [(layer.lora_A[name].weight.float(), layer.lora_B[name].weight.float()) for layer in layers]
    with torch.no_grad():
        if not any(b.any() for _, b in factors):
            moments = torch.stack([(a.flatten(1) / a.std()).pow(4).mean() for a, _ in factors])
            return "gaussian" if moments.mean() > BETWEEN_UNIFORM_AND_NORMAL else "kaiming-uniform"
        found = {_initialization(a.flatten(1), b.flatten(1)) for a, b in factors}
    return found.pop() if len(found) == 1 else "mixed"


def _initialization(a: torch.Tensor, b: torch.Tensor) -> str:
    gram_a, gram_b = a @ a.T, b.T @ b

    def is_close(x: torch.Tensor, y: torch.Tensor) -> bool:
        return ((x - y).norm() <= GRAM_TOLERANCE * y.norm()).item()

    if is_close(gram_b, torch.eye(len(gram_b), device=b.device)):
        return "olora" if a.any() else "mica"
    if is_close(gram_b, gram_a) and is_close(gram_a, gram_a.diag().diag()):
        return "pissa"
    product = (gram_b * gram_a).sum().clamp(min=0).sqrt()  # the norm of B A
    return "orthogonal" if product <= GRAM_TOLERANCE * a.norm() * b.norm() else "other"


def check_as_asked(
    actual: Mapping[str, Any],
    precision: str,
    quantization: Mapping[str, Any] | None,
    peft: Mapping[str, Any] | None = None,
) -> None:
    """Compare what was loaded with what the arm's label says: types, quantization, and the adapter of `peft`.

    Raises:
        ArmFailed: names what differs.
    """
    asked: dict[str, Any] = {"base_dtype": precision, "quantization": None, "adapter": None}
    if quantization and quantization.get("load_in_8bit"):
        asked["quantization"] = {"type": "int8"}
    elif quantization:
        asked["quantization"] = {
            "type": quantization["bnb_4bit_quant_type"],
            "double_quantization": quantization["bnb_4bit_use_double_quant"],
        }
    if peft:
        asked["adapter"] = _asked_adapter(peft, actual["adapter"] or {})
    for key, value in asked.items():
        found = actual[key]
        if isinstance(value, dict) and found:
            found = {name: found.get(name) for name in value}
        if found != value:
            raise ArmFailed(f"asked for {key} {value}, but the loaded model has {found}")


def _asked_adapter(peft: Mapping[str, Any], actual: Mapping[str, Any]) -> dict[str, Any]:
    """What `actual` should say of an adapter, where the configuration decides it for all layers alike."""
    config = get_peft_config({"task_type": "CAUSAL_LM", **peft})
    asked: dict[str, Any] = {"type": config.peft_type.value}
    if config.is_prompt_learning:
        asked["virtual_tokens"] = config.num_virtual_tokens
    if peft["peft_type"] == "LORA":
        asked["dora"] = config.use_dora
        if not (config.rank_pattern or config.alpha_pattern):
            root = math.sqrt(config.r) if config.use_rslora else config.r
            asked |= {"rank": [config.r], "scaling": [config.lora_alpha / root]}
        if "initialization" in actual and config.init_lora_weights in INITIALIZATIONS:
            asked["initialization"] = INITIALIZATIONS[config.init_lora_weights]
    return asked


def check_optimizer(groups: Sequence[Mapping[str, Any]], learning_rate: float, loraplus_lr_ratio: float | None) -> None:
    """Compare the optimizer's groups (`AdapterTrainer.optimizer_groups`) with the learning rates that were asked for.

    Raises:
        ArmFailed: names the group that differs.
    """
    for group in groups:
        # PEFT's LoRA+ gives the ratio to all that are no matrices too: DoRA's magnitudes.
        rate = learning_rate * (loraplus_lr_ratio or 1 if "lora_B" in group["of"] else 1)
        mixed = loraplus_lr_ratio and {"lora_A", "lora_B"} <= set(group["of"])
        if mixed or not math.isclose(group["learning_rate"], rate):
            raise ArmFailed(
                f"asked for a learning rate of {rate:g}, but the optimizer has {group['learning_rate']:g} for "
                f"{', '.join(group['of'])}"
            )


# What has to be the same for a model that was trained and for the one that was reloaded.
RELOADED = ("adapter_dtype", "quantization", "trainable_parameters", "base_parameters")


def check_as_trained(actual: Mapping[str, Any], trained: Mapping[str, Any]) -> None:
    """Compare what was reloaded with what its training read back.

    Raises:
        ArmFailed: names what differs.
    """
    if "virtual_tokens" in (actual["adapter"] or {}):
        return  # PEFT reloads no prompt as trainable, and of one that a network made only what it made
    for key in RELOADED:
        if actual[key] != trained[key]:
            raise ArmFailed(f"the reloaded model has {key} {actual[key]}, but the trained one had {trained[key]}")
