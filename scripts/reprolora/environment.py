"""What this machine and this Python environment can do: the facts behind `make doctor`.

Nothing here is taken from a version table: a data type is tried with a matrix product on the device, and 4-bit
quantization with a tensor that goes there and back. A part that is missing or broken becomes a sentence in the report.
"""

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "bitsandbytes", "datasets", "gguf", "snakemake")
PRECISIONS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
# The product that a data type is tried with: large enough that its time is arithmetic, small enough to be free.
PROBE_SIZE = 512
PROBE_RUNS = 5
# bf16 keeps 8 bits of mantissa, so the mean error of a product is near 2**-8 of its size; a broken one is near 1.
PRODUCT_TOLERANCE = 0.05
# Normal numbers lose 9 % (nf4) to 15 % (fp4, large blocks) of their mean size in 4 bits; a broken kernel, all of it.
QUANTIZATION_TOLERANCE = 0.25
LOCK = "requirements.lock"


def describe(methods: Mapping[str, Mapping], accelerator: str) -> dict[str, Any]:
    """The whole report: versions, PyTorch's build, the device, data types, bitsandbytes, and one verdict per method.

    `methods` are the catalogue entries of the chosen experiments, `accelerator` the one that the configuration's
    hardware names (cpu, cuda or rocm). The values are plain data, ready for JSON.
    """
    build = torch_build()
    device = device_report(accelerator, build)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: installed_version(name) for name in PACKAGES},
        "torch_build": build,
        "accelerator": accelerator,
        "device": device,
        "precisions": {} if device["problem"] else measure_precisions(device["type"]),
        "auto_precision": None if device["problem"] else automatic_precision(device["type"]),
        "bitsandbytes": bitsandbytes_report(device),
        "methods": {name: verdict(method, device) for name, method in sorted(methods.items())},
    }


def installed_version(name: str) -> str | None:
    """The installed version of a distribution, with its build's mark (`2.13.0+cpu`), or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def torch_build() -> dict[str, str | None]:
    """What PyTorch was built for: {"kind": cpu|cuda|rocm, "toolkit": its version, "problem": why it does not load}."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return {"kind": None, "toolkit": None, "problem": one_line(error)}
    if torch.version.hip:
        return {"kind": "rocm", "toolkit": torch.version.hip, "problem": None}
    if torch.version.cuda:
        return {"kind": "cuda", "toolkit": torch.version.cuda, "problem": None}
    return {"kind": "cpu", "toolkit": None, "problem": None}


def device_report(accelerator: str, build: Mapping[str, str | None]) -> dict[str, Any]:
    """The device that training would use: PyTorch's type, names and memory; `problem` says why it cannot be used."""
    report: dict[str, Any] = {"type": None, "names": [], "memory_bytes": [], "problem": None}
    if build["problem"]:
        return report | {"problem": f"PyTorch does not load ({build['problem']}); install {LOCK}"}
    import torch

    if accelerator == "cpu":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return report | {"type": "cpu", "names": [processor_name()], "memory_bytes": [memory]}
    # PyTorch's ROCm build answers under the name of cuda, so the build decides which of the two is there.
    if build["kind"] != accelerator:
        return report | {
            "problem": f"the configuration's hardware is {accelerator}, but this PyTorch is built for {build['kind']}; "
            f"install the environment envs/train-{accelerator}.yaml (docs/environments.md)"
        }
    if not torch.cuda.is_available():
        maker = "NVIDIA" if accelerator == "cuda" else "AMD"
        return report | {
            "problem": f"the configuration's hardware is {accelerator}, but PyTorch sees no {maker} GPU; "
            "check the driver and the visible devices, or choose other hardware"
        }
    found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return report | {
        "type": "cuda",
        "names": [properties.name for properties in found],
        "memory_bytes": [properties.total_memory for properties in found],
    }


def processor_name() -> str:
    """The processor's name as Linux tells it, else what Python knows."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def measure_precisions(device_type: str) -> dict[str, dict[str, Any]]:
    """Try each data type on the device: does a product come out right, and how fast is it against fp32?"""
    import torch

    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(PROBE_SIZE, PROBE_SIZE, generator=generator).to(device_type) for _ in range(2))
    expected = left @ right
    results: dict[str, dict[str, Any]] = {}
    for name, attribute in PRECISIONS.items():
        dtype = getattr(torch, attribute)
        try:
            a, b = left.to(dtype), right.to(dtype)
            error = relative_error(a @ b, expected)
            seconds = best_time(lambda a=a, b=b: a @ b, torch.cuda.synchronize if device_type == "cuda" else None)
        except RuntimeError as failure:
            results[name] = {"works": False, "problem": one_line(failure)}
            continue
        works = error < PRODUCT_TOLERANCE  # false for a NaN too
        results[name] = {"works": works, "seconds": seconds}
        if not works:
            results[name]["problem"] = f"a product is off by {error:.3f} of its size"
        elif device_type == "cuda" and name == "bf16":
            results[name]["native"] = torch.cuda.is_bf16_supported(including_emulation=False)
    base = results["fp32"].get("seconds")
    for result in results.values():
        if base and result["works"]:
            result["speed_against_fp32"] = round(base / result["seconds"], 2)
    return results


def automatic_precision(device_type: str) -> dict[str, str]:
    """What `precision: auto` takes here, and why: the same choice as training makes."""
    import torch

    from reprolora.precision import choose_precision

    return choose_precision("auto", torch.device(device_type))


def best_time(work: Callable[[], Any], synchronize: Callable[[], None] | None) -> float:
    """The shortest of a few timings, so that another process's work is not counted."""
    times = []
    for _ in range(PROBE_RUNS):
        start = time.perf_counter()
        work()
        if synchronize:
            synchronize()
        times.append(time.perf_counter() - start)
    return min(times)


def relative_error(actual: Any, expected: Any) -> float:
    """The mean size of the difference of two tensors, against the mean size of the expected one."""
    return ((actual.float() - expected.float()).abs().mean() / expected.float().abs().mean()).item()


def bitsandbytes_report(device: Mapping[str, Any]) -> dict[str, Any]:
    """Which bitsandbytes is there, the library that it loaded, and whose kernels its 4-bit operators have here.

    A kernel is the device's own (`cpu`, `cuda`) or `default`: written in PyTorch, right but slower.
    """
    report: dict[str, Any] = {"version": installed_version("bitsandbytes"), "problem": None}
    if report["version"] is None:
        return report | {"problem": f"bitsandbytes is not installed; install {LOCK}"}
    if device["problem"]:
        return report | {"problem": device["problem"]}
    try:
        with assertions_as_errors():
            from bitsandbytes import cextension
    except (ImportError, OSError, RuntimeError) as error:
        return report | {"problem": f"bitsandbytes does not load: {one_line(error)}"}
    import torch

    library = getattr(vars(cextension.lib).get("_lib"), "_name", None)
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    key = str(device["type"]).upper()
    return report | {
        "backend": cextension.BNB_BACKEND.lower(),
        "library": Path(library).name if library else None,
        "kernels": {
            name: device["type"] if has_kernel(f"bitsandbytes::{name}", key) else "default"
            for name in ("quantize_4bit", "dequantize_4bit", "gemm_4bit")
        },
    }


@contextmanager
def assertions_as_errors() -> Iterator[None]:
    """Turn a failed assertion of a library into a RuntimeError, which its caller reports."""
    try:
        yield
    except AssertionError as error:
        raise RuntimeError(one_line(error)) from error


def quantization_problem(options: Mapping[str, Any], device_type: str) -> str | None:
    """Quantize a small tensor there and back with a method's own options; None when it came back as itself."""
    if not (options.get("load_in_4bit") or options.get("load_in_8bit")):
        return "the method's quantization says neither load_in_4bit: true nor load_in_8bit: true"
    if installed_version("bitsandbytes") is None:
        return f"it needs bitsandbytes, which is not installed; install {LOCK}"
    quant_type = options.get("bnb_4bit_quant_type", "fp4")  # the default of Transformers, when a method names none
    double = options.get("bnb_4bit_use_double_quant", False)
    name = "8-bit" if options.get("load_in_8bit") else f"4-bit {quant_type}"
    import torch

    try:
        with assertions_as_errors():
            from bitsandbytes import functional

            tensor = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).to(device_type)
            if options.get("load_in_8bit"):
                packed, constants, _ = functional.int8_vectorwise_quant(tensor.half())
                back = functional.int8_vectorwise_dequant(packed, constants)
            else:
                packed, state = functional.quantize_4bit(tensor, quant_type=quant_type, compress_statistics=double)
                back = functional.dequantize_4bit(packed, state)
                if (state.quant_type, state.nested) != (quant_type, double):
                    return (
                        f"asked for {quant_type} with double quantization {double}, got {state.quant_type} with "
                        f"{state.nested}"
                    )
    except (ImportError, OSError, RuntimeError, NotImplementedError, ValueError) as error:
        return f"{name} does not work on this {device_type} device: {one_line(error)}"
    error = relative_error(back, tensor)
    if not error < QUANTIZATION_TOLERANCE:
        return f"{name} loses {error:.0%} of a tensor on this {device_type} device: its kernels are broken"
    return None


def adapter_problem(options: Mapping[str, Any]) -> str | None:
    """Build the adapter's configuration with the installed PEFT; None when PEFT takes every key."""
    try:
        import peft
    except (ImportError, OSError, RuntimeError) as error:
        return f"PEFT does not load ({one_line(error)}); install {LOCK}"
    keys = {key: value for key, value in options.items() if key != "peft_type"}
    kind = str(options.get("peft_type"))
    if kind not in peft.PEFT_TYPE_TO_CONFIG_MAPPING:
        return f"PEFT {peft.__version__} has no peft_type {kind}"
    try:
        peft.PEFT_TYPE_TO_CONFIG_MAPPING[kind](**keys)
    except (TypeError, ValueError) as error:
        return f"PEFT {peft.__version__} refuses it: {one_line(error)}"
    return None


def verdict(method: Mapping[str, Any], device: Mapping[str, Any]) -> dict[str, Any]:
    """Whether a method of the catalogue can run here: {"can_run", "why"}, `why` being one line either way."""
    baseline = method.get("baseline")
    if baseline == "majority":
        return {"can_run": True, "why": "counts labels; needs no package"}
    if baseline == "tfidf-logistic-regression":
        version = installed_version("scikit-learn")
        if version is None:
            return {"can_run": False, "why": f"it needs scikit-learn, which is not installed; install {LOCK}"}
        return {"can_run": True, "why": f"with scikit-learn {version}"}
    problems = [device["problem"]]
    if method.get("peft") and not device["problem"]:
        problems.append(adapter_problem(method["peft"]))
        if quantization := method.get("quantization"):
            problems.append(quantization_problem(quantization, device["type"]))
    problem = next((text for text in problems if text), None)
    if problem:
        return {"can_run": False, "why": problem}
    if quantization := method.get("quantization"):
        bits = 8 if quantization.get("load_in_8bit") else 4
        return {"can_run": True, "why": f"a tensor went to {bits} bits and back on the {device['type']} device"}
    return {"can_run": True, "why": f"on {device['names'][0]}"}


def one_line(error: object, limit: int = 300) -> str:
    """An error's text without line breaks, and not longer than a person reads."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 1] + "…"


def table(report: Mapping[str, Any]) -> str:
    """The report as the lines that `make doctor` prints."""
    rows = [("Python", f"{report['python']} on {report['platform']}")]
    build = report["torch_build"]
    for name, version in report["packages"].items():
        text = version or "not in this environment"
        if name == "torch" and build["kind"]:
            text += " (" + " ".join(filter(None, ("built for", build["kind"], build["toolkit"]))) + ")"
        rows.append((name, text))
    device = report["device"]
    rows.append(("hardware", f"{report['accelerator']} (from the configuration)"))
    if device["problem"]:
        rows.append(("device", device["problem"]))
    for name, memory in zip(device["names"], device["memory_bytes"], strict=True):
        rows.append(("device", f"{name}, {memory / 2**30:.1f} GiB"))
    rows += [(name, precision_line(result)) for name, result in report["precisions"].items()]
    if auto := report["auto_precision"]:
        rows.append(("precision auto", f"{auto['chosen']}: {auto['reason']}"))
    rows.append(("4-bit", quantization_line(report["bitsandbytes"])))
    for name, result in report["methods"].items():
        rows.append((f"method {name}", ("can run: " if result["can_run"] else "CANNOT RUN: ") + result["why"]))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def precision_line(result: Mapping[str, Any]) -> str:
    if not result["works"]:
        return f"no: {result['problem']}"
    emulated = ", emulated" if result.get("native") is False else ""
    return f"works, a matrix product has {result['speed_against_fp32']:g} times the speed of fp32{emulated}"


def quantization_line(report: Mapping[str, Any]) -> str:
    if report["problem"]:
        return report["problem"]
    kernels = ", ".join(f"{name}: {kind}" for name, kind in report["kernels"].items())
    return f"bitsandbytes {report['version']}, backend {report['backend']}, {report['library']} ({kernels})"
