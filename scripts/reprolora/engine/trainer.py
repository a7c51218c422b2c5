"""Training an adapter, or a whole model: TRL's SFTTrainer with batches that pay for each token once.

Arguments, callbacks, checkpoints, mixed precision and distributed launch are the Trainer's own. Two things are ours:
how a batch is laid out and its loss computed (`ragged`), and the order of the rows, which is the same with either
layout, so that the two can be compared step by step.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from peft.optimizers import create_loraplus_optimizer
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_callback import PrinterCallback
from transformers.trainer_utils import EvalLoopOutput
from trl import SFTConfig, SFTTrainer

from reprolora.engine import last_layer, lora
from reprolora.engine.batches import IGNORED, LengthGroupedBatches, collate_padded, collate_ragged
from reprolora.engine.ragged import ATTENTION, RaggedPlan
from reprolora.errors import ArmFailed
from reprolora.memory import keep_freed_memory
from reprolora.prompts import EncodedRow


class AdapterTrainer(SFTTrainer):
    """SFTTrainer on encoded rows.

    Args:
        model: with its adapter, whose values and types are left as they are (SFTTrainer would round those on a
            quantized base to bf16); or a plain model, of which every parameter is trained.
        args: the Trainer's configuration; its seed decides the order of the rows.
        train_rows, validation_rows: encoded prompts and completions.
        tokenizer: gives the padding token of the ordinary layout.
        ragged: lay batches out without padding and with the shared prefix once; otherwise padded, as SFTTrainer does.
        loraplus_lr_ratio: how many times the learning rate the B matrices of LoRA get (LoRA+, Hayou et al. 2024).
    """

    def __init__(
        self,
        model: PeftModel | PreTrainedModel,
        args: SFTConfig,
        train_rows: Sequence[EncodedRow],
        validation_rows: Sequence[EncodedRow],
        tokenizer: PreTrainedTokenizerBase,
        ragged: bool,
        loraplus_lr_ratio: float | None = None,
        callbacks=(),
    ):
        self.ragged, self.loraplus_lr_ratio = ragged, loraplus_lr_ratio
        self._train_lengths = [len(row.ids) for row in train_rows]
        args.dataset_kwargs = {"skip_prepare_dataset": True}
        args.remove_unused_columns = False
        base = model.get_base_model() if isinstance(model, PeftModel) else model
        adapter = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad and base is not model}
        super().__init__(
            model=model,
            args=args,
            train_dataset=_dataset(train_rows),
            eval_dataset=_dataset(sorted(validation_rows, key=lambda row: len(row.ids))),
            processing_class=tokenizer,
            data_collator=partial(_collate, ragged=ragged, pad_token_id=tokenizer.pad_token_id),
            callbacks=list(callbacks),
        )
        self.remove_callback(PrinterCallback)  # it prints each log as a dictionary; the caller has lines of its own
        for name, parameter in model.named_parameters():
            if name in adapter:
                parameter.data = adapter[name]
        self.fused_layers = 0
        if ragged:
            base.set_attn_implementation(ATTENTION)
            self.fused_layers = lora.install(model)
            self.read = last_layer.install(base)
        keep_freed_memory()

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        if not self.loraplus_lr_ratio:
            return super().create_optimizer(model)
        if self.optimizer is None:
            kind, options = self.get_optimizer_cls_and_kwargs(self.args, self.model)
            self.optimizer = create_loraplus_optimizer(
                self.model,
                kind,
                loraplus_lr_ratio=self.loraplus_lr_ratio,
                loraplus_weight_decay=self.args.weight_decay,
                **options,
            )
        return self.optimizer

    def optimizer_groups(self) -> list[dict[str, Any]]:
        """The groups of the optimizer as it is: peak learning rate, weight decay, how many parameters, and of what."""
        kinds = {
            id(parameter): next((kind for kind in ("lora_A", "lora_B") if kind in name), "other")
            for name, parameter in self.model.named_parameters()
        }
        return [
            {
                "learning_rate": group.get("initial_lr", group["lr"]),  # the former once there is a scheduler
                "weight_decay": group["weight_decay"],
                "parameters": sum(parameter.numel() for parameter in group["params"]),
                "of": sorted({kinds[id(parameter)] for parameter in group["params"]}),
            }
            for group in self.optimizer.param_groups
            if group["params"]
        ]

    def trained_model(self) -> PeftModel | PreTrainedModel:
        """The model without what training put around it (autocast, fused layers), so that it computes as a reloaded
        one does."""
        lora.remove(self.model)
        if self.ragged:
            last_layer.remove(self.model)
        return self.accelerator.unwrap_model(self.model, keep_fp32_wrapper=False)

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> LengthGroupedBatches:
        batch_size = self._train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        return LengthGroupedBatches(self._train_lengths, batch_size, self.args.seed)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Negative log-likelihood of the completion tokens, summed, over `num_items_in_batch` (all that the optimizer
        step learns from, so that accumulated micro-batches equal one large batch) or over those of this batch."""
        if not self.ragged:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        plan = RaggedPlan(inputs["prefix"], inputs["lengths"], inputs["shared"], inputs["input_ids"].device)
        self.read.places = inputs["logits_to_keep"]
        outputs = model(
            input_ids=inputs["input_ids"],
            position_ids=plan.position_ids,
            logits_to_keep=inputs["logits_to_keep"],
            use_cache=False,
            ragged_plan=plan,
        )
        targets = inputs["shift_labels"]
        loss = cross_entropy(outputs.logits.squeeze(0).float(), targets, reduction="sum")
        loss = loss / (len(targets) if num_items_in_batch is None else num_items_in_batch)
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes  # the tokens of all processes were counted; gradients average
        return (loss, outputs) if return_outputs else loss

    def training_step(self, *args, **kwargs):
        loss = super().training_step(*args, **kwargs)
        if not torch.isfinite(loss):
            raise ArmFailed(
                f"the loss is {loss.item()} at step {self.state.global_step + 1}; likely the learning rate "
                f"{self.args.learning_rate:g} is too high, or fp16 overflows (try bf16 or fp32)"
            )
        return loss

    def evaluation_loop(
        self, dataloader, description, prediction_loss_only=None, ignore_keys=None, metric_key_prefix="eval"
    ) -> EvalLoopOutput:
        """The mean loss over all completion tokens (the Trainer's loop would weigh short batches like full ones)."""
        model = self._wrap_model(self.model, training=False)
        model.eval()
        total = torch.zeros(2, dtype=torch.float64)
        for inputs in dataloader:
            inputs = self._prepare_inputs(inputs)
            targets = inputs["shift_labels"] if self.ragged else inputs["labels"][:, 1:]
            with torch.no_grad(), self.compute_loss_context_manager():
                loss = self.compute_loss(model, inputs, num_items_in_batch=torch.tensor(1))
            total += torch.tensor([loss.item() / self.accelerator.num_processes, (targets != IGNORED).sum().item()])
        loss, tokens = self.accelerator.reduce(total.to(self.args.device), "sum").tolist()
        samples = len(dataloader.dataset)
        return EvalLoopOutput(None, None, {f"{metric_key_prefix}_loss": loss / tokens}, samples)


def _dataset(rows: Sequence[EncodedRow]) -> Dataset:
    return Dataset.from_dict(
        {"input_ids": [row.ids for row in rows], "prompt_length": [row.prompt_length for row in rows]}
    )


def _collate(features: Sequence[dict], ragged: bool, pad_token_id: int) -> dict:
    rows = [EncodedRow(feature["input_ids"], feature["prompt_length"]) for feature in features]
    return collate_ragged(rows) if ragged else collate_padded(rows, pad_token_id)
