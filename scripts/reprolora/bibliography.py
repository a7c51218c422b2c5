"""What an experiment should cite: its data, models, methods and software, as BibTeX."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("references.bib")
KEY = re.compile(r"@\w+\s*\{\s*([^,\s]+)\s*,")
PEFT_TYPES = {
    "LORA": "hu2022lora",
    "IA3": "liu2022ia3",
    "PROMPT_TUNING": "lester2021prompt",
}
STATISTICS = ("wilson1927interval", "efron1979bootstrap", "mcnemar1947test", "holm1979correction")
ANSWERS = ("rajpurkar2016squad", "lin2004rouge", "popovic2015chrf", "post2018sacrebleu")
ANALYSIS = (
    "pedregosa2011sklearn",
    "virtanen2020scipy",
    "seabold2010statsmodels",
    "waskom2021seaborn",
    "molder2021snakemake",
)


@cache
def entries() -> dict[str, str]:
    """The entries of methods and software, by their keys."""
    texts = FILE.read_text(encoding="utf-8").strip().split("\n\n")
    return {key_of(text): text for text in texts}


def key_of(entry: str) -> str | None:
    """The key of a BibTeX entry; None for a text that is none."""
    match = KEY.search(entry)
    return match[1] if match else None


def method_keys(method: Mapping[str, Any]) -> list[str]:
    """The keys to cite for a method: its PEFT recipe and its quantization."""
    peft, quantization = method["peft"] or {}, method["quantization"] or {}
    keys = [PEFT_TYPES[peft["peft_type"]]] if peft.get("peft_type") in PEFT_TYPES else []
    keys += ["liu2024dora"] if peft.get("use_dora") else []
    keys += ["kalajdzievski2023rslora"] if peft.get("use_rslora") else []
    keys += ["meng2024pissa"] if str(peft.get("init_lora_weights")).startswith("pissa") else []
    keys += ["hayou2024loraplus"] if method.get("loraplus_lr_ratio") else []
    keys += ["dettmers2023qlora"] if quantization.get("load_in_4bit") else []
    keys += ["dettmers2022int8"] if quantization.get("load_in_8bit") else []
    return keys


def bibliography(settings: Mapping[str, Any]) -> str:
    """The content of references.bib for an experiment with these settings; each entry once."""
    return "\n\n".join(dict.fromkeys(_entries(settings))) + "\n"


def _entries(settings: Mapping[str, Any]) -> Iterator[str]:
    for entry in (settings["dataset"], *settings["models"].values()):
        if entry["citation"]:
            yield entry["citation"].strip()
    methods = settings["methods"].values()
    keys = ["reprolora", *(key for method in methods for key in method_keys(method))]
    if settings["models"]:
        keys += ["ansel2024pytorch", "wolf2020transformers", "codecarbon"]
    if any(method["peft"] for method in methods):
        keys += ["mangrulkar2022peft", "vonwerra2020trl", "lhoest2021datasets", "loshchilov2019adamw"]
    if any(method["quantization"] for method in methods):
        keys.append("dettmers2022bitsandbytes")
    if settings["experiment"].get("task") == "instruction":
        keys += ANSWERS
    yield from (entries()[key] for key in (*keys, *STATISTICS, *ANALYSIS))
