"""From the settings of a training to a trained adapter: the Trainer's arguments, its checkpoints, its log."""

import hashlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from trl import SFTConfig

from reprolora.files import read_json, write_json
from reprolora.measure import peak_bytes

log = logging.getLogger(__name__)

# What a checkpoint must hold to go on from; the Trainer writes them one after another, and a kill may come between.
CHECKPOINT_FILES = ("optimizer.pt", "scheduler.pt", "trainer_state.json")
CHECKPOINT_WEIGHTS = ("adapter_model.safetensors", "model.safetensors", "model.safetensors.index.json")
SCHEDULERS = {"linear": "linear", "cosine": "cosine", "constant": "constant_with_warmup"}
LONGEST_LOGGING_INTERVAL = 10
LOG_LINES = 20


def steps_per_epoch(rows: int, batch_size: int) -> int:
    return -(-rows // batch_size)


def trainer_arguments(
    training: Mapping[str, Any],
    seed: int,
    precision: str,
    rows: int,
    device: torch.device,
    checkpoints: str | Path,
    tracker: Mapping[str, str] | None = None,
) -> SFTConfig:
    """The Trainer's arguments for the `training` section of an experiment, and for a tracker (`prepare_tracker`).

    Under a distributed launch the effective batch size stays the one asked for; each process takes its share.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    micro = training["micro_batch_size"] or -(-training["batch_size"] // world)
    accumulation = max(1, training["batch_size"] // (micro * world))
    epoch = steps_per_epoch(rows, training["batch_size"])
    total = max(1, round(epoch * training["epochs"]))
    evaluate_every = max(1, epoch // training["evaluations_per_epoch"])
    return SFTConfig(
        output_dir=str(checkpoints),
        seed=seed,
        data_seed=seed,
        max_steps=total,
        per_device_train_batch_size=micro,
        per_device_eval_batch_size=2 * micro,
        gradient_accumulation_steps=accumulation,
        learning_rate=training["learning_rate"],
        lr_scheduler_type=SCHEDULERS[training["scheduler"]],
        warmup_steps=round(total * training["warmup_fraction"]),
        weight_decay=training["weight_decay"],
        max_grad_norm=training["max_grad_norm"],
        max_length=training["max_length"],
        gradient_checkpointing=training["gradient_checkpointing"],
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=device.type == "cpu",
        optim="adamw_torch_fused",
        eval_strategy="steps",
        eval_steps=evaluate_every,
        save_strategy="steps",
        save_steps=evaluate_every,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="eval_loss",
        greater_is_better=False,
        logging_steps=max(1, min(LONGEST_LOGGING_INTERVAL, total // LOG_LINES)),
        logging_nan_inf_filter=False,
        **(tracker or {"report_to": "none"}),
        disable_tqdm=not sys.stderr.isatty(),
        dataloader_pin_memory=device.type == "cuda",
    )


class TrainingLog(TrainerCallback):
    """Collects what training_log.jsonl holds, and says each line of it on the log."""

    def __init__(self, device: torch.device, batch_size: int):
        self.device, self.batch_size = device, batch_size
        self.records: list[dict[str, Any]] = []
        self._last = (0, time.perf_counter())

    def on_train_begin(self, args, state, control, **kwargs):
        self._last = (state.global_step, time.perf_counter())
        # After a resumption: what was logged before it.
        for entry in state.log_history:
            self._record(entry, None)

    def on_log(self, args, state, control, logs=None, **kwargs):
        step, then = self._last
        now = time.perf_counter()
        speed = (state.global_step - step) / (now - then)
        if logs and "loss" in logs:
            self._last = (state.global_step, now)
        record = self._record({**(logs or {}), "step": state.global_step}, speed)
        if record and "loss" in record:
            log.info(
                "step %d/%d | loss %.4f | lr %.2e | memory %.1f GB | %.2f it/s",
                state.global_step,
                state.max_steps,
                record["loss"],
                record["learning_rate"],
                record["memory_bytes"] / 1e9,
                speed,
            )
        elif record:
            log.info("step %d/%d | validation loss %.4f", state.global_step, state.max_steps, record["validation_loss"])

    def on_evaluate(self, args, state, control, **kwargs):
        self._last = (state.global_step, time.perf_counter())  # the time of an evaluation is not the next steps'

    def _record(self, logs: Mapping[str, Any], speed: float | None) -> dict | None:
        record = {"step": logs.get("step"), "epoch": logs.get("epoch")}
        if "loss" in logs:
            record |= {
                "loss": float(logs["loss"]),
                "learning_rate": logs["learning_rate"],
                "gradient_norm": float(logs["grad_norm"]),
                "memory_bytes": peak_bytes(self.device),
                "examples_per_second": None if speed is None else speed * self.batch_size,
            }
        elif "eval_loss" in logs:
            record["validation_loss"] = logs["eval_loss"]
        else:
            return None
        self.records.append(record)
        return record


class Checkpoints:
    """The folder to resume from when a training was killed, tied to exactly what that training was.

    Args:
        folder: where checkpoints lie; not among a rule's outputs, since those are deleted before a job starts.
        settings: the settings as text; `inputs`: files whose content the training depends on.
    """

    def __init__(self, folder: str | Path, settings: str, inputs: Sequence[str | Path]):
        self.folder = Path(folder)
        digest = hashlib.sha256(settings.encode())
        for file in inputs:
            digest.update(Path(file).read_bytes())
        self._fingerprint = digest.hexdigest()

    def latest(self) -> Path | None:
        """The last whole checkpoint of this very training; those of another one are removed."""
        mark = self.folder / "training.json"
        if self.folder.exists() and not (mark.exists() and read_json(mark) == {"fingerprint": self._fingerprint}):
            log.info("%s: checkpoints of another configuration; starting from the beginning", self.folder)
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(mark, {"fingerprint": self._fingerprint})
        whole = [
            path
            for path in self.folder.glob("checkpoint-*")
            if all((path / name).is_file() for name in CHECKPOINT_FILES)
            and any((path / name).is_file() for name in CHECKPOINT_WEIGHTS)
        ]
        latest = max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
        if latest:
            log.info("resuming from %s", latest)
        return latest

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
