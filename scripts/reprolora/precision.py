"""Which floating-point type to compute in."""

import torch

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_precision(asked: str, device: torch.device) -> dict[str, str]:
    """Resolve `auto|fp32|bf16|fp16` for a device: {"asked", "chosen", "reason"}.

    `auto` takes bf16 only where the hardware multiplies it: a CPU without such instructions emulates it at a hundredth
    of the speed of fp32. It goes by what the hardware reports, not by a timing, so that it never changes between runs.
    """
    if asked != "auto":
        return {"asked": asked, "chosen": asked, "reason": "as asked"}
    chosen, reason = _best(device)
    return {"asked": asked, "chosen": chosen, "reason": reason}


def _best(device: torch.device) -> tuple[str, str]:
    if device.type == "cuda":
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return "bf16", "the GPU computes in bf16"
        return "fp16", "the GPU has no bf16"
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        for name in ("amx_bf16", "avx512_bf16", "bf16"):  # the last is ARM's name for it
            if capabilities.get(name):
                return "bf16", f"the CPU computes in bf16 ({name})"
        return "fp32", "the CPU has no bf16 instructions and would emulate them"
    return "fp32", f"nothing is known of bf16 on {device.type}"
