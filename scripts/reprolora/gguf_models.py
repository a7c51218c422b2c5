"""Making an ordinary model folder, float32 safetensors and tokenizer, of a GGUF file.

Transformers reads the weights out of the GGUF file, dequantized. What it does not do is mended here:

- A model that was loaded from GGUF counts as quantized and refuses `save_pretrained`; its weights are plain floats, so
  the mark is taken off.
- The tokenizer's pre-tokenizer is only named in a GGUF file (`tokenizer.ggml.pre`), and Transformers takes GPT-2's for
  every name that it does not know, without a word. SmolLM's splits each digit off before GPT-2's rules apply: with
  GPT-2's alone, two spaces before a digit, or a space before a sign such as a raised two, become other tokens than the
  model was trained on. A name that neither Transformers nor this module knows is refused.
"""

from pathlib import Path
from typing import Any

from reprolora.errors import UserError
from reprolora.model_files import save_model

PRE_TOKENIZER_KEY = "tokenizer.ggml.pre"
PLAIN_GPT2 = ("gpt-2", "gpt2")
PROBES = (
    "Somehow I was blessed with some really amazing friends. #blessed",
    "In 2014 we'll pay 3.50  2 times &amp; more: x\u00b2 \u00bd \U0001f600\n\n7",
)


def convert_gguf(gguf: Path, folder: Path, where: str) -> dict[str, Any]:
    """Write the model in `gguf` to `folder`; returns what the manifest should say about it."""
    model, tokenizer, about = read_gguf(gguf, where)
    save_model(model, tokenizer, folder)
    _verify(model, tokenizer, folder)
    return about


def read_gguf(gguf: Path, where: str) -> tuple[Any, Any, dict[str, Any]]:
    """The model in a GGUF file, in float32 and with nothing left of its quantization, its tokenizer, and what the file
    says of both: {"tensor_types", "pre_tokenizer"}.

    Raises:
        UserError: Transformers cannot read the file, or not its tokenizer; it names `where`.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        about = _read_metadata(gguf)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32, local_files_only=True
        )
    except (ValueError, KeyError, OSError) as error:
        raise UserError(f"{where}: Transformers cannot read this GGUF file ({error}); use another model") from error
    _mend_pre_tokenizer(tokenizer, about["pre_tokenizer"], where)
    tokenizer.model_max_length = model.config.max_position_embeddings
    _drop_quantization_mark(model)
    return model, tokenizer, about


def _read_metadata(gguf: Path) -> dict[str, Any]:
    from gguf import GGUFReader

    reader = GGUFReader(gguf)
    field = reader.get_field(PRE_TOKENIZER_KEY)
    return {
        "tensor_types": sorted({tensor.tensor_type.name for tensor in reader.tensors}),
        "pre_tokenizer": field.contents() if field else None,
    }


def _mend_pre_tokenizer(tokenizer: Any, named: str | None, where: str) -> None:
    """Give the tokenizer the pre-tokenizer that the GGUF file names, if Transformers did not."""
    from tokenizers import pre_tokenizers

    built = tokenizer.backend_tokenizer.pre_tokenizer
    if named in (None, *PLAIN_GPT2) or not isinstance(built, pre_tokenizers.ByteLevel):
        return
    if named != "smollm":
        raise UserError(
            f"{where}: Transformers does not know this GGUF file's pre-tokenizer {named!r} and would cut texts into "
            "other tokens than the model learned; use the model's safetensors instead"
        )
    tokenizer.backend_tokenizer.pre_tokenizer = smollm_pre_tokenizer()


def smollm_pre_tokenizer() -> Any:
    """The rules that GGUF calls `smollm`."""
    from tokenizers import pre_tokenizers

    return pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )


def _drop_quantization_mark(model: Any) -> None:
    del model.config.quantization_config
    model.is_quantized = False
    model.hf_quantizer = None
    model.quantization_method = None


def _verify(model: Any, tokenizer: Any, folder: Path) -> None:
    """Reload what was saved; its tokens and logits must be those of the model in memory, bit for bit."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    saved_tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    saved = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    texts = [*PROBES, *_chat(tokenizer)]
    for text in texts:
        tokens = tokenizer(text, return_tensors="pt").input_ids
        if not torch.equal(tokens, saved_tokenizer(text, return_tensors="pt").input_ids):
            raise RuntimeError(f"the saved tokenizer cuts {text!r} into other tokens")
        if tokenizer.decode(tokens[0]) != text:
            raise RuntimeError(f"the tokenizer does not give back {text!r}")
        with torch.inference_mode():
            if not torch.equal(model.eval()(tokens).logits, saved.eval()(tokens).logits):
                raise RuntimeError(f"the saved model has other logits for {text!r}")
    if _chat(saved_tokenizer) != _chat(tokenizer):
        raise RuntimeError("the saved chat template differs")


def _chat(tokenizer: Any) -> list[str]:
    """A question as the tokenizer's chat template writes it, if there is one."""
    if not tokenizer.chat_template:
        return []
    chat = [{"role": "user", "content": PROBES[0]}]
    return [tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)]
