"""Train one adapter, or all weights: from a base model and encoded rows to what has the best validation loss.

Reads the base model, the training and validation rows. Writes what was trained with its tokenizer, the log of the
training, what was really trained (training.json), what it took (resources_train.json), and what the trained model
answers on some validation rows (reload_probe.jsonl), with which evaluate_adapter compares the reloaded one.
"""

import argparse
import json
import logging
import platform
from importlib.metadata import version
from pathlib import Path
from statistics import median

import torch

from reprolora import models, readback
from reprolora.answer_probe import probe_answers
from reprolora.devices import claim_device
from reprolora.diagnosis import TrainingDiagnosis
from reprolora.engine.ragged import why_not
from reprolora.engine.trainer import AdapterTrainer
from reprolora.errors import ArmFailed, Undertrained, run_script
from reprolora.evaluation import Asker
from reprolora.failures import recorded_failure
from reprolora.files import read_jsonl, write_json, write_jsonl
from reprolora.measure import Meter
from reprolora.precision import TYPES, choose_precision
from reprolora.prompts import EncodedRow, FittedRows, InstructionEncoder, PromptEncoder, encode_rows, fit_rows
from reprolora.tracking import check_tracker, prepare_tracker
from reprolora.training import Checkpoints, TrainingLog, trainer_arguments

log = logging.getLogger(__name__)

PACKAGES = ("torch", "transformers", "peft", "trl", "accelerate", "bitsandbytes", "datasets", "tokenizers")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the base model's manifest.json")
    parser.add_argument("--train", required=True)
    parser.add_argument("--validation", required=True)
    parser.add_argument("--settings", required=True, help="JSON: what the rule passes as settings")
    parser.add_argument("--adapter-config", required=True, help="adapter_config.json; its folder gets the adapter")
    parser.add_argument("--training-log", required=True)
    parser.add_argument("--training", required=True)
    parser.add_argument("--resources", required=True)
    parser.add_argument("--reload-probe", required=True)
    parser.add_argument("--checkpoints", required=True, help="folder to resume from after an interruption")
    parser.add_argument("--tracking", default="none", help="tracker to send the curves to as well")
    parser.add_argument("--tracking-folder", default="results/tracking", help="where a tracker's files go")
    parser.add_argument("--on-problem", choices=["warn", "stop"], default="warn", help="what a diagnosis does")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser.parse_args()


def main() -> None:
    args = parse_args()
    settings = json.loads(args.settings)
    folder, inputs = Path(args.training).parent, [args.model, args.train, args.validation]
    with recorded_failure(folder, settings["arm"], "train_adapter", args.settings, inputs):
        train(args, settings)


def train(args: argparse.Namespace, settings: dict) -> None:
    torch.set_num_threads(args.threads)
    models.quiet_libraries()
    check_tracker(args.tracking)
    training, method, seed = settings["training"], settings["method"], settings["arm"]["seed"]
    device = claim_device(settings["accelerator"])
    precision = choose_precision(training["precision"], device)
    train_rows, validation_rows = list(read_jsonl(args.train)), list(read_jsonl(args.validation))
    checkpoints = Checkpoints(args.checkpoints, args.settings, [args.model, args.train, args.validation])

    # Full fine-tuning updates weights, and updates of bf16 or fp16 weights would be rounded away.
    loaded = "fp32" if method["full"] else precision["chosen"]
    meter = Meter(device, args.threads)
    with meter.phase("load"):
        folder = models.model_folder(args.model)
        tokenizer = models.load_tokenizer(folder)
        with_instructions = settings["task"] == "instruction"
        encoder = (InstructionEncoder if with_instructions else PromptEncoder)(tokenizer, settings["prompt"])
        fitted = encode(encoder, train_rows, training["max_length"], args.train)
        encoded = fitted.encoded
        encoded_validation = encode(encoder, validation_rows, training["max_length"], args.validation).encoded
        base = models.load_base(folder, loaded, device, method["quantization"])
        model = base.requires_grad_(True) if method["full"] else models.add_adapter(base, method["peft"], seed)
        initial = models.adapter_sha256(model)
    actual = readback.describe(model)
    if actual["adapter"]:
        actual["adapter"]["initialization"] = readback.initialization(model)
    readback.check_as_asked(actual, loaded, method["quantization"], method["peft"])
    fallback = why_not(model)
    ragged = training["engine"] == "shared-prefix" and not fallback
    if fallback:
        log.info("ordinary batches: %s", fallback)

    resume_from = checkpoints.latest()
    tracker = prepare_tracker(args.tracking, args.tracking_folder, settings["arm"], resumes=resume_from is not None)
    with meter.phase("train"):
        training_log = TrainingLog(device, training["batch_size"])
        share = count_supervised(encoded) / sum(len(row.ids) for row in encoded)
        diagnosis = TrainingDiagnosis(
            settings["diagnosis"], args.on_problem == "stop", training["learning_rate"], method["full"], share
        )
        trainer = AdapterTrainer(
            model,
            trainer_arguments(training, seed, precision["chosen"], len(encoded), device, args.checkpoints, tracker),
            encoded,
            encoded_validation,
            tokenizer,
            ragged,
            method["loraplus_lr_ratio"],
            callbacks=[training_log, diagnosis],
        )
        trainer.create_optimizer()
        groups = trainer.optimizer_groups()
        readback.check_optimizer(groups, training["learning_rate"], method["loraplus_lr_ratio"])
        try:
            trainer.train(resume_from_checkpoint=resume_from)
        except Undertrained:
            checkpoints.remove()  # perhaps of the last step, from which there would be nothing to resume
            raise
    model = trainer.trained_model()
    if models.adapter_sha256(model) == initial:
        raise ArmFailed("the training changed no value; likely the learning rate is too low")
    if method["full"]:
        for parameter in model.parameters():  # as they are saved, reloaded and asked; buffers stay as a load has them
            parameter.data = parameter.data.to(TYPES[precision["chosen"]])
    state = trainer.state

    if with_instructions:
        probe = probe_answers(model, encoder, validation_rows)
    else:
        probe = Asker(model, encoder, settings["labels"]).probe(validation_rows)
    tokenizer.chat_template = encoder.chat_template  # so that whoever loads it asks as it was trained
    models.save_adapter(model, tokenizer, Path(args.adapter_config).parent)
    write_jsonl(args.training_log, training_log.records)
    write_jsonl(args.reload_probe, probe)
    write_json(
        args.training,
        {
            "arm": settings["arm"],
            "settings": settings,
            "precision": precision,
            "actual": actual,
            "engine": {
                "asked": training["engine"],
                "used": "shared-prefix" if ragged else "plain",
                "reason": fallback,
                "fused_layers": trainer.fused_layers,
            },
            "optimizer": {"groups": groups},
            "steps": state.global_step,
            "best_step": state.best_global_step,
            "best_validation_loss": state.best_metric,
            "train_rows": len(encoded),
            "validation_rows": len(encoded_validation),
            "truncated_rows": len(fitted.truncated),
            "left_out_rows": len(fitted.left_out),
            "supervised_tokens": count_supervised(encoded),
            "diagnosis": diagnosis.record,
            "initial_adapter_sha256": initial,
            "adapter_sha256": models.adapter_sha256(model),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        },
    )
    speeds = [record["examples_per_second"] for record in training_log.records if record.get("examples_per_second")]
    write_json(
        args.resources,
        {
            **meter.record,
            "model_bytes": actual["base_bytes"],
            "adapter_bytes": (Path(args.adapter_config).parent / "adapter_model.safetensors").stat().st_size,
            "examples": state.global_step * training["batch_size"],
            "tokens": sum(len(row.ids) for row in encoded),
            "examples_per_second": median(speeds),
            "seconds_per_step": training["batch_size"] / median(speeds),
        },
    )
    checkpoints.remove()


def encode(encoder: PromptEncoder | InstructionEncoder, rows: list[dict], max_length: int, file: str) -> FittedRows:
    """The rows within `max_length`: instructions may lose the end of an answer, a text never loses its label."""
    if isinstance(encoder, InstructionEncoder):
        return fit_rows(encoder, rows, max_length, file)
    return FittedRows(encode_rows(encoder, rows, max_length, file))


def count_supervised(rows: list[EncodedRow]) -> int:
    return sum(len(row.ids) - row.prompt_length for row in rows)


if __name__ == "__main__":
    run_script(main)
