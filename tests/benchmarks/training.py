"""Training: ours against the plain path and against TRL's SFTTrainer, on the same rows."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import mean
from tempfile import TemporaryDirectory

from datasets import Dataset
from peft import PeftModel, get_peft_config
from transformers import TrainerCallback
from transformers.trainer_callback import PrinterCallback
from trl import SFTConfig, SFTTrainer

from benchmarks.operations import peak_operations_per_second, training_operations
from benchmarks.report import Report
from benchmarks.workload import Workload
from reprolora.engine.batches import LengthGroupedBatches, collate_ragged
from reprolora.engine.trainer import AdapterTrainer
from reprolora.errors import ArmFailed
from reprolora.precision import TYPES
from reprolora.prompts import EncodedRow
from reprolora.training import trainer_arguments

CURVE_STEPS = 10
SEED = 1
LARGEST_LOSS_DIFFERENCE = 1e-4


@dataclass
class Training:
    """A finished training: seconds in all, seconds and loss of each step."""

    model: PeftModel
    seconds: float
    step_seconds: list[float]
    losses: list[float]

    @property
    def steady_step(self) -> float:
        """Mean seconds of a step after the first, in which every side first touches its memory."""
        return mean(self.step_seconds[1:])


class Clock(TrainerCallback):
    def __init__(self):
        self.begun = self.seconds = self.step = 0.0
        self.step_seconds: list[float] = []
        self.losses: list[float] = []

    def on_train_begin(self, args, state, control, **kwargs):
        self.begun = time.perf_counter()

    def on_step_begin(self, args, state, control, **kwargs):
        self.step = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.step_seconds.append(time.perf_counter() - self.step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))

    def on_train_end(self, args, state, control, **kwargs):
        self.seconds = time.perf_counter() - self.begun


def ours(
    workload: Workload,
    method: str,
    rows: Sequence[dict] | Sequence[EncodedRow],
    precision: str | None = None,
    ragged: bool = True,
    model: PeftModel | None = None,
) -> Training:
    """Train a new adapter (or `model`'s) as train_adapter does, without its validation; plainly if not `ragged`."""
    precision = precision or workload.precision
    model = model or workload.adapted(method, precision)
    encoded = rows if isinstance(rows[0], EncodedRow) else workload.encode(rows)
    with TemporaryDirectory() as folder:
        args = trainer_arguments(
            workload.settings["training"] | {"epochs": 1.0}, SEED, precision, len(rows), workload.device, folder
        )
        args.eval_strategy = args.save_strategy = "no"
        args.load_best_model_at_end = False
        args.logging_steps = 1
        trainer = AdapterTrainer(model, args, encoded, encoded[:1], workload.tokenizer, ragged)
        return _run(trainer)


def trl(
    workload: Workload,
    method: str,
    rows: Sequence[dict],
    precision: str | None = None,
    micro_batch: int = 4,
    checkpointing: bool = True,
) -> Training:
    """Train a new adapter as the tutorials do: chat messages, micro-batches, SFTConfig's defaults for the rest."""
    precision = precision or workload.precision
    training = workload.settings["training"]
    messages = [
        {"prompt": workload.encoder.messages(r["text"]), "completion": [{"role": "assistant", "content": r["label"]}]}
        for r in rows
    ]
    with TemporaryDirectory() as folder:
        args = SFTConfig(
            output_dir=folder,
            per_device_train_batch_size=micro_batch,
            gradient_accumulation_steps=training["batch_size"] // micro_batch,
            gradient_checkpointing=checkpointing,
            learning_rate=training["learning_rate"],
            num_train_epochs=1,
            # bf16 is the default; where the CPU only emulates it, it would be a hundred times slower than fp32.
            bf16=precision == "bf16",
            fp16=precision == "fp16",
            use_cpu=workload.device.type == "cpu",
            dataloader_pin_memory=workload.device.type == "cuda",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            seed=SEED,
        )
        trainer = SFTTrainer(
            model=workload.base(method, precision),
            args=args,
            train_dataset=Dataset.from_list(messages),
            processing_class=workload.tokenizer,
            peft_config=get_peft_config({"task_type": "CAUSAL_LM", **workload.methods[method]["peft"]}),
        )
        if precision == "fp32":
            # SFTTrainer rounds an adapter on a quantized base to bf16, which is what this precision is to avoid.
            for parameter in trainer.model.parameters():
                if parameter.requires_grad:
                    parameter.data = parameter.data.float()
        trainer.remove_callback(PrinterCallback)
        return _run(trainer)


def _run(trainer: SFTTrainer) -> Training:
    for parameter in trainer.model.parameters():
        # Weights are mapped into memory and read from the disk when first used, which is no step's time.
        parameter.detach().flatten()[::512].sum()
    clock = Clock()
    trainer.add_callback(clock)
    trainer.train()
    return Training(trainer.model, clock.seconds, clock.step_seconds, clock.losses)


def measure(workload: Workload, report: Report, steps: int, repeats: int) -> None:
    """Ours against SFTTrainer's defaults, and against its own larger batches without gradient checkpointing.

    The adapters have the tutorials' dropout, but where a name says otherwise.
    """
    bf16 = workload.precision == "bf16"
    batch_size = workload.settings["training"]["batch_size"]
    without_dropout = with_dropout(workload, 0.0)
    speeds: dict[str, list[float]] = {}
    shares: dict[str, list[float]] = {"fp32": [], workload.precision: []}

    def timed(name: str, training: Training) -> None:
        speeds.setdefault(name, []).append(batch_size / training.steady_step)

    for repeat in range(repeats):
        rows = workload.batches(steps + 1, repeat)
        timed("lora", ours(workload, "lora", rows))
        timed("lora_trl", trl(workload, "lora", rows))
        timed("lora_trl_large", trl(workload, "lora", rows, micro_batch=batch_size, checkpointing=False))
        with _share_of_peak(workload, workload.precision, rows, shares) as done:
            done.append(ours(without_dropout, "lora", rows))
        timed("lora_without_dropout", done[0])
        timed("lora_trl_without_dropout", trl(without_dropout, "lora", rows))
        timed("qlora", ours(workload, "qlora", rows))
        timed("qlora_trl", trl(workload, "qlora", rows))
        if bf16:
            timed("lora_trl_fp32", trl(workload, "lora", rows, "fp32"))
            with _share_of_peak(workload, "fp32", rows, shares) as done:
                done.append(ours(without_dropout, "lora", rows, "fp32"))

    def compare(name: str, mine: str, other: str) -> None:
        report.add(name, [a / b for a, b in zip(speeds[mine], speeds[other], strict=True)])

    report.note("precision", workload.precision)
    report.note("steps", steps)
    for name, values in speeds.items():
        report.note(f"examples_per_second_{name}", max(values))
    compare("train_lora_vs_trl", "lora", "lora_trl")
    compare("train_lora_vs_trl_batch16", "lora", "lora_trl_large")
    compare("train_lora_vs_trl_without_dropout", "lora_without_dropout", "lora_trl_without_dropout")
    compare("train_qlora_vs_trl", "qlora", "qlora_trl")
    no_bf16 = f"{workload.device.type} does not compute in bf16"
    if bf16:
        compare("train_lora_vs_trl_fp32", "lora", "lora_trl_fp32")
        report.add("gemm_share_bf16", shares["bf16"])
    else:
        report.skip("train_lora_vs_trl_fp32", no_bf16)
        report.skip("gemm_share_bf16", no_bf16)
    report.add("gemm_share_fp32", shares["fp32"])
    report.note(
        "train_vs_trl_settings",
        "SFTTrainer on chat messages, SFTConfig's defaults but 4 rows x 4 accumulated and the same precision, learning "
        "rate and adapter (dropout 0.05); its QLoRA adapter put back to fp32 where that is the precision; "
        "batch16: 16 rows at once, no gradient checkpointing; each run's first step is not timed",
    )


def with_dropout(workload: Workload, dropout: float) -> Workload:
    """The same workload, with this dropout in the adapters."""
    methods = {
        name: {**method, "peft": {**method["peft"], "lora_dropout": dropout}}
        for name, method in workload.methods.items()
    }
    return replace(workload, methods=methods)


@contextmanager
def _share_of_peak(workload: Workload, precision: str, rows: Sequence[dict], shares: dict) -> Iterator[list[Training]]:
    """Add to `shares` which share of the machine's matrix-multiply peak the training put in the list reached."""
    dtype, done = TYPES[precision], []
    peak = peak_operations_per_second(dtype, workload.device)
    yield done
    peak = max(peak, peak_operations_per_second(dtype, workload.device))
    useful = [
        training_operations(
            done[0].model, batch["prefix"], batch["lengths"], batch["shared"], len(batch["shift_labels"])
        )
        for batch in ragged_batches(workload.encode(rows), workload.settings["training"]["batch_size"])
    ]
    shares[precision].append(mean(useful[1:]) / done[0].steady_step / peak)


def ragged_batches(rows: Sequence[EncodedRow], batch_size: int) -> Iterator[dict]:
    """The batches that `ours` trains on, in order."""
    order = list(LengthGroupedBatches([len(row.ids) for row in rows], batch_size, SEED))
    for start in range(0, len(order), batch_size):
        yield collate_ragged([rows[place] for place in order[start : start + batch_size]])


def compare_curves(workload: Workload, report: Report, steps: int = CURVE_STEPS) -> PeftModel:
    """Ours and the plain path over the same batches in fp32, without dropout; returns the adapter that ours trained.

    Raises:
        ArmFailed: the losses differ by more than rounding.
    """
    rows = workload.batches(steps, 0)
    workload = with_dropout(workload, 0.0)
    mine, plain = (ours(workload, "lora", rows, "fp32", ragged) for ragged in (True, False))
    difference = max(abs(a - b) for a, b in zip(mine.losses, plain.losses, strict=True))
    report.add("train_lora_vs_plain", [b / a for a, b in zip(mine.step_seconds, plain.step_seconds, strict=True)])
    report.add("loss_difference_to_plain", [difference])
    report.note("loss_curve", [round(loss, 6) for loss in mine.losses])
    if not difference <= LARGEST_LOSS_DIFFERENCE:
        raise ArmFailed(f"the loss curves of ours and of the plain path differ by {difference:.2g}")
    return mine.model
