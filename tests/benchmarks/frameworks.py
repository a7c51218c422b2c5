"""Training by other frameworks, each in a virtual environment of its own, made when it is first needed."""

import json
import os
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import torch

from benchmarks import training
from benchmarks.report import Report
from benchmarks.workload import Workload

INSTALLATION_SECONDS = 1800


class Unavailable(Exception):
    """A framework cannot be installed, or does not train here."""


class Framework(ABC):
    """A framework that trains the workload's LoRA in fp32 with the workload's batch size, rank and learning rate.

    Args:
        venvs: folder of the virtual environments.
    """

    name: ClassVar[str]
    requirements: ClassVar[tuple[str, ...]]

    def __init__(self, venvs: Path):
        self.folder = venvs.resolve() / self.name
        self.bin = self.folder / "bin"

    @abstractmethod
    def train(self, workload: Workload, rows: Sequence[dict], scratch: Path) -> float:
        """Train on `rows` once; returns the seconds of its training loop alone."""

    def install(self) -> None:
        """Make the virtual environment, if it is not there whole. PyTorch is the same version as ours."""
        mark = self.folder / "installed"
        wanted = "\n".join([*self.requirements, version("torch")])
        if mark.exists() and mark.read_text() == wanted:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        self._run([sys.executable, "-m", "venv", self.folder])
        pin = self.folder / "constraints.txt"
        pin.write_text(f"torch=={version('torch').partition('+')[0]}\n")
        # PyTorch first: it comes in the build that the package index has for this machine, and stays.
        pip = [self.bin / "pip", "install", "--quiet", "--constraint", pin]
        self._run([*pip, "torch"], INSTALLATION_SECONDS)
        self._run([*pip, *self.requirements], INSTALLATION_SECONDS)
        self._drop_what_does_not_load()
        mark.write_text(wanted)

    def _drop_what_does_not_load(self) -> None:
        """Take out torchvision and torchaudio where they were built for another PyTorch than this machine's.

        Rows of text need neither, but a framework may import torchaudio at its start: an empty module stands in.
        """
        for package in ("torchvision", "torchaudio"):
            try:
                self._run([self.bin / "python", "-c", f"import {package}"])
            except Unavailable:
                self._run([self.bin / "pip", "uninstall", "--quiet", "--yes", package])
        if not self._has("torchaudio"):
            where = [self.bin / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
            Path(self._run(where).strip(), "torchaudio.py").touch()

    def _has(self, module: str) -> bool:
        check = [self.bin / "python", "-c", f"import importlib.util as u, sys; sys.exit(not u.find_spec({module!r}))"]
        return subprocess.run(check).returncode == 0

    def versions(self) -> dict[str, str]:
        listed = self._run([self.bin / "pip", "list", "--format", "json", "--disable-pip-version-check"])
        found = {package["name"]: package["version"] for package in json.loads(listed)}
        return {name: found[name] for name in (self.name, "torch", "transformers", "peft", "trl") if name in found}

    def _run(self, command: Sequence, seconds: float = INSTALLATION_SECONDS, folder: Path | None = None) -> str:
        """What a command printed; raises Unavailable with the last line that it said if it failed."""
        leaking = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        environment = {name: value for name, value in os.environ.items() if name not in leaking}
        environment |= {"OMP_NUM_THREADS": str(torch.get_num_threads()), "HF_HUB_OFFLINE": "1"}
        environment["PATH"] = f"{self.bin}{os.pathsep}{environment['PATH']}"
        try:
            done = subprocess.run(
                list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired as error:
            raise Unavailable(f"{self.name}: {Path(command[0]).name} took more than {seconds:.0f} s") from error
        if done.returncode:
            said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()] or ["said nothing"]
            raise Unavailable(f"{self.name}: {Path(command[0]).name} failed: {said[-1].strip()}")
        return done.stdout + done.stderr


class LlamaFactory(Framework):
    name = "llamafactory"
    requirements = ("llamafactory==0.9.5",)

    def train(self, workload: Workload, rows: Sequence[dict], scratch: Path) -> float:
        training, peft = workload.settings["training"], workload.methods["lora"]["peft"]
        system = workload.settings["prompt"]["system"]
        turns = [{"instruction": r["text"], "output": r["label"], "system": system} for r in rows]
        (scratch / "rows.json").write_text(json.dumps(turns))
        columns = {"prompt": "instruction", "response": "output", "system": "system"}
        (scratch / "dataset_info.json").write_text(json.dumps({"rows": {"file_name": "rows.json", "columns": columns}}))
        settings = {
            "stage": "sft",
            "do_train": True,
            "model_name_or_path": str(workload.folder.resolve()),
            "template": "smollm",
            "dataset": "rows",
            "dataset_dir": str(scratch),
            "output_dir": str(scratch / "out"),
            "cutoff_len": training["max_length"],
            "finetuning_type": "lora",
            "lora_target": "all",
            "lora_rank": peft["r"],
            "lora_alpha": peft["lora_alpha"],
            "lora_dropout": peft["lora_dropout"],
            "per_device_train_batch_size": training["batch_size"],
            "gradient_accumulation_steps": 1,
            "learning_rate": training["learning_rate"],
            "num_train_epochs": 1,
            "use_cpu": workload.device.type == "cpu",
            "save_strategy": "no",
            "report_to": "none",
        }
        config = scratch / "config.yaml"
        config.write_text(json.dumps(settings))  # JSON is YAML
        self._run([self.bin / "llamafactory-cli", "train", config], folder=scratch)
        return json.loads((scratch / "out" / "train_results.json").read_text())["train_runtime"]


class LitGpt(Framework):
    name = "litgpt"
    requirements = ("litgpt==0.5.13", "requests")  # which its command line needs, and does not ask for

    def train(self, workload: Workload, rows: Sequence[dict], scratch: Path) -> float:
        model = scratch / "SmolLM2-135M-Instruct"  # the name under which litgpt knows its sizes
        model.mkdir()
        for path in workload.folder.resolve().iterdir():
            (model / path.name).symlink_to(path)
        turns = [{"instruction": row["text"], "output": row["label"]} for row in rows]
        (scratch / "rows").mkdir()
        (scratch / "rows" / "train.json").write_text(json.dumps(turns))
        (scratch / "rows" / "val.json").write_text(json.dumps(turns[:1]))
        self._run([self.bin / "litgpt", "convert_to_litgpt", model])
        training, peft = workload.settings["training"], workload.methods["lora"]["peft"]
        settings = {
            "out_dir": str(scratch / "out"),
            "precision": "32-true",
            "lora_r": peft["r"],
            "lora_alpha": peft["lora_alpha"],
            "lora_dropout": peft["lora_dropout"],
            **{f"lora_{part}": True for part in ("query", "key", "value", "projection", "mlp")},
            "data": {
                "class_path": "litgpt.data.JSON",
                "init_args": {
                    "json_path": str(scratch / "rows"),
                    "mask_prompt": True,
                    "num_workers": 0,
                    "prompt_style": {
                        "class_path": "litgpt.prompts.ChatML",
                        "init_args": {"system_message": workload.settings["prompt"]["system"]},
                    },
                },
            },
            "train": {
                "global_batch_size": training["batch_size"],
                "micro_batch_size": training["batch_size"],
                "max_seq_length": training["max_length"],
                "epochs": 1,
                "log_interval": 1,
                "lr_warmup_steps": 1,
            },
            "eval": {"max_new_tokens": 1, "max_iters": 1, "final_validation": False, "evaluate_example": "first"},
            "optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"lr": training["learning_rate"]}},
        }
        config = scratch / "config.yaml"
        config.write_text(json.dumps(settings))
        said = self._run([self.bin / "litgpt", "finetune_lora", model, "--config", config], folder=scratch)
        return sum(step_seconds(said))


FRAMEWORKS = (LlamaFactory, LitGpt)


def step_seconds(said: str) -> list[float]:
    """The times of litgpt's steps, out of what it printed."""
    return [float(found) / 1000 for found in re.findall(r"iter time: ([0-9.]+) ms", said)]


def measure(workload: Workload, report: Report, venvs: Path, scratch: Path, steps: int, repeats: int) -> None:
    """Ours in fp32 against each framework that is to be had."""
    for kind in FRAMEWORKS:
        framework, name = kind(venvs), f"train_lora_vs_{kind.name}"
        ratios = []
        try:
            framework.install()
            for repeat in range(repeats):
                rows = workload.batches(steps + 1, repeat)
                mine = training.ours(workload, "lora", rows, "fp32").seconds
                with TemporaryDirectory(dir=scratch) as folder:
                    ratios.append(framework.train(workload, rows, Path(folder).resolve()) / mine)
        except Unavailable as error:
            report.skip(name, str(error))
            continue
        for package, number in framework.versions().items():
            report.note(f"version_{kind.name}_{package}".replace(f"{kind.name}_{kind.name}", kind.name), number)
        report.add(name, ratios)
    report.note("train_vs_frameworks_settings", "fp32, all rows of a batch at once, the framework's defaults otherwise")
