"""Making an adapter a part of the weights of its base model."""

import warnings

from peft import PeftModel
from transformers import PreTrainedModel

from reprolora.errors import ArmFailed


def merge(model: PreTrainedModel | PeftModel) -> PreTrainedModel:
    """The model with its adapter's weights added to its own, as an ordinary model; one without an adapter as it is.

    Raises:
        ArmFailed: this type of adapter is no change of weights (a learned prompt), PEFT cannot merge it, or the merged
            weights are not numbers.
    """
    if not isinstance(model, PeftModel):
        return model
    config = model.active_peft_config
    if config.is_prompt_learning or not hasattr(model.base_model, "merge_and_unload"):
        raise ArmFailed(
            f"an adapter of type {config.peft_type.value} cannot be merged: it does not change the model's weights; "
            "use the adapter with its base model"
        )
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            merged = model.merge_and_unload(safe_merge=True)
    except (ValueError, NotImplementedError, TypeError, AttributeError) as error:
        raise ArmFailed(f"PEFT cannot merge this adapter of type {config.peft_type.value}: {error}") from error
    if untied := [str(warning.message) for warning in said if "tied_target_modules" in str(warning.message)]:
        raise ArmFailed(f"the adapter changes weights that the model uses twice, so it cannot be merged: {untied[0]}")
    return merged.requires_grad_(False)
