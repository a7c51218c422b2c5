"""Loading the model that an evaluation asks, and making sure that it is what its arm's name says."""

import argparse
import logging
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from reprolora import models, readback
from reprolora.devices import claim_device
from reprolora.errors import ArmFailed
from reprolora.files import read_json
from reprolora.measure import Meter
from reprolora.precision import choose_precision

log = logging.getLogger(__name__)


def evaluation_parser(description: str) -> argparse.ArgumentParser:
    """The arguments of every script that evaluates an arm with a language model."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the base model's manifest.json")
    parser.add_argument("--test", required=True)
    parser.add_argument("--settings", required=True, help="JSON: what the rule passes as settings")
    parser.add_argument("--predictions", required=True)
    parser.add_argument("--metrics", required=True)
    parser.add_argument("--resources", required=True)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    return parser


def reload_parser(description: str) -> argparse.ArgumentParser:
    """The same with those of the scripts that reload an adapter and compare it with the trained model."""
    parser = evaluation_parser(description)
    parser.add_argument("--adapter-config", required=True, help="adapter_config.json in the adapter's folder")
    parser.add_argument("--training", required=True, help="training.json")
    parser.add_argument("--reload-probe", required=True)
    parser.add_argument("--validation", required=True)
    return parser


def load_trained(
    args: argparse.Namespace, accelerator: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, str, Meter]:
    """The model with its adapter, reloaded from disk; its tokenizer, its precision, and the meter of loading.

    `args` has the paths `model`, `adapter_config` and `training`, and the number of `threads`.

    Raises:
        ArmFailed: what was loaded is not what was asked for or not what was trained.
    """
    torch.set_num_threads(args.threads)
    models.quiet_libraries()
    trained = read_json(args.training)
    precision, method = trained["precision"]["chosen"], trained["settings"]["method"]
    device = claim_device(accelerator)
    meter = Meter(device, args.threads)
    with meter.phase("load"):
        folder = models.model_folder(args.model)
        tokenizer = models.load_tokenizer(folder)
        base = models.load_base(folder, precision, device, method["quantization"])
        model = models.reload_adapter(base, Path(args.adapter_config).parent, tokenizer)
    actual = readback.describe(model)
    readback.check_as_asked(actual, precision, method["quantization"], method["peft"])
    readback.check_as_trained(actual, trained["actual"])
    if models.adapter_sha256(model) != trained["adapter_sha256"]:
        log.info("the adapter's file is not the one that %s describes", args.training)
    return model, tokenizer, precision, meter


def load_untrained(
    args: argparse.Namespace, accelerator: str, precision: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, Meter]:
    """The base model as it is, its tokenizer, and the meter that it was loaded by.

    `args` has the path `model` and the number of `threads`.
    """
    torch.set_num_threads(args.threads)
    models.quiet_libraries()
    device = claim_device(accelerator)
    chosen = choose_precision(precision, device)["chosen"]
    meter = Meter(device, args.threads)
    with meter.phase("load"):
        folder = models.model_folder(args.model)
        tokenizer = models.load_tokenizer(folder)
        model = models.load_base(folder, chosen, device)
    readback.check_as_asked(readback.describe(model), chosen, None)
    return model.eval(), tokenizer, meter


def check_context(model: PreTrainedModel, needed: int, remedy: str) -> None:
    """Raise ArmFailed when the longest prompt and its answer, of `needed` tokens, do not fit the model's positions."""
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions and needed > positions:
        raise ArmFailed(
            f"the longest prompt and its answer take {needed} tokens, but the model knows {positions} positions; "
            f"{remedy}"
        )
