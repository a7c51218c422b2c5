"""`make doctor`: every line is measured or read, and a method that cannot run says why."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from reprolora import environment

SCRIPT = Path(__file__).parents[2] / "scripts" / "doctor.py"
LORA = {"peft": {"peft_type": "LORA", "r": 16, "target_modules": "all-linear"}}
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
METHODS = {
    "lora": LORA,
    "qlora": LORA | {"quantization": NF4},
    "misspelt": {"peft": {"peft_type": "LORA", "lora_alhpa": 32}},
    "unknown": {"peft": {"peft_type": "LORRA"}},
    "eight": LORA | {"quantization": {"load_in_8bit": True}},
    "other": LORA | {"quantization": NF4 | {"bnb_4bit_quant_type": "nf5"}},
    "neither": LORA | {"quantization": {"load_in_4bit": False}},
    "full": {"peft": None, "full": True, "baseline": None},
    "few-shot": {"baseline": "few-shot", "shots": 4},
    "zero-shot": {"baseline": "zero-shot"},
    "majority": {"baseline": "majority"},
    "tfidf": {"baseline": "tfidf-logistic-regression"},
}
CPU = {"type": "cpu", "names": ["a processor"], "memory_bytes": [1], "problem": None}


def run_doctor(folder: Path, accelerator: str) -> tuple[dict, str]:
    output = folder / "environment.json"
    settings = json.dumps({"accelerator": accelerator, "methods": METHODS})
    command = [sys.executable, SCRIPT, "--settings", settings, "--output", output]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(output.read_text()), done.stdout


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory):
    return run_doctor(tmp_path_factory.mktemp("doctor"), "cpu")


def test_versions_are_those_installed(on_cpu):
    report, printed = on_cpu
    torch = importlib.import_module("torch")
    assert report["packages"]["torch"] == torch.__version__
    assert report["torch_build"]["toolkit"] == (torch.version.hip or torch.version.cuda)
    assert all(report["packages"].values())
    for name, version in report["packages"].items():
        assert any(line.split()[:2] == [name, version] for line in printed.splitlines())


def test_every_data_type_is_tried(on_cpu):
    report, printed = on_cpu
    assert set(report["precisions"]) == set(environment.PRECISIONS)
    assert report["precisions"]["fp32"]["speed_against_fp32"] == 1
    for result in report["precisions"].values():
        assert result["works"] and result["seconds"] > 0
    assert "times the speed of fp32" in printed
    auto = report["auto_precision"]
    assert report["precisions"][auto["chosen"]]["works"]
    assert f"{auto['chosen']}: {auto['reason']}" in printed


def test_bitsandbytes_backend_is_read_from_the_loaded_library(on_cpu):
    report = on_cpu[0]["bitsandbytes"]
    assert report["problem"] is None
    assert report["library"].startswith("libbitsandbytes_")
    assert set(report["kernels"].values()) <= {"cpu", "default"}


@pytest.mark.parametrize(
    ("method", "can_run", "why"),
    [
        ("lora", True, "on "),
        ("qlora", True, "4 bits and back"),
        ("misspelt", False, "lora_alhpa"),
        ("unknown", False, "no peft_type LORRA"),
        ("eight", True, "8 bits and back"),
        ("neither", False, "neither load_in_4bit: true nor load_in_8bit: true"),
        ("full", True, "on "),
        ("few-shot", True, "on "),
        ("other", False, "nf5"),
        ("zero-shot", True, "on "),
        ("majority", True, "counts labels"),
        ("tfidf", True, "scikit-learn"),
    ],
)
def test_one_line_for_each_method(on_cpu, method, can_run, why):
    report, printed = on_cpu
    assert report["methods"][method]["can_run"] is can_run
    assert why in report["methods"][method]["why"]
    lines = [line for line in printed.splitlines() if line.startswith(f"method {method} ")]
    assert len(lines) == 1
    assert ("CANNOT RUN" in lines[0]) is not can_run


def test_asking_for_a_gpu_that_this_build_cannot_drive(monkeypatch):
    cpu_build = {"kind": "cpu", "toolkit": None, "problem": None}
    for accelerator in ("cuda", "rocm"):
        device = environment.device_report(accelerator, cpu_build)
        assert f"envs/train-{accelerator}.yaml" in device["problem"]
        for method in (LORA, METHODS["qlora"], METHODS["zero-shot"]):
            assert environment.verdict(method, device) == {"can_run": False, "why": device["problem"]}
        assert environment.verdict(METHODS["majority"], device)["can_run"]
    # A ROCm build says cuda of itself: only the build tells AMD from NVIDIA.
    rocm_build = {"kind": "rocm", "toolkit": "7.2", "problem": None}
    assert "built for rocm" in environment.device_report("cuda", rocm_build)["problem"]
    monkeypatch.setattr(importlib.import_module("torch").cuda, "is_available", lambda: False)
    assert "sees no AMD GPU" in environment.device_report("rocm", rocm_build)["problem"]


def test_a_gpu_is_described(monkeypatch):
    cuda = importlib.import_module("torch").cuda
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 2)
    monkeypatch.setattr(
        cuda, "get_device_properties", lambda index: SimpleNamespace(name=f"GPU {index}", total_memory=80 * 2**30)
    )
    device = environment.device_report("cuda", {"kind": "cuda", "toolkit": "13.0", "problem": None})
    assert device == {
        "type": "cuda",
        "names": ["GPU 0", "GPU 1"],
        "memory_bytes": [80 * 2**30] * 2,
        "problem": None,
    }


def test_missing_packages_are_lines_of_the_report(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(environment, "installed_version", lambda name: None)
    report = environment.describe(METHODS, "cpu")
    assert "import of torch halted" in report["device"]["problem"]
    assert "requirements.lock" in report["methods"]["lora"]["why"]
    assert not report["methods"]["qlora"]["can_run"]
    assert "not in this environment" in environment.table(report)
    assert "scikit-learn" in report["methods"]["tfidf"]["why"] and not report["methods"]["tfidf"]["can_run"]


def test_quantization_is_never_taken_on_trust(monkeypatch):
    functional = importlib.import_module("bitsandbytes.functional")
    assert environment.quantization_problem(NF4, "cpu") is None
    with monkeypatch.context() as patch:
        patch.setattr(functional, "dequantize_4bit", lambda packed, state: packed.new_zeros(64, 64).float())
        assert "kernels are broken" in environment.quantization_problem(NF4, "cpu")
    with monkeypatch.context() as patch:
        real = functional.quantize_4bit
        patch.setattr(
            functional, "quantize_4bit", lambda tensor, quant_type, compress_statistics: real(tensor, quant_type="fp4")
        )
        assert "asked for nf4" in environment.quantization_problem(NF4, "cpu")
    with monkeypatch.context() as patch:
        patch.setattr(environment, "installed_version", lambda name: None)
        assert "not installed" in environment.quantization_problem(NF4, "cpu")
        assert "not installed" in environment.bitsandbytes_report(CPU)["problem"]


def test_a_wrong_product_is_not_support(monkeypatch):
    monkeypatch.setattr(environment, "PRODUCT_TOLERANCE", 0.0)
    results = environment.measure_precisions("cpu")
    assert not results["bf16"]["works"]
    assert environment.precision_line(results["bf16"]).startswith("no: a product is off by")
