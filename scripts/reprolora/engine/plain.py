"""The ordinary way to ask a model: one row at a time, with `model.generate` and one pass per label or completion.

It serves models that the ragged engine does not know, and is what the engine's answers and speed are measured against.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import torch
from peft import PeftModel
from transformers import GenerationConfig, PreTrainedModel


@torch.no_grad()
def generate(
    model: PreTrainedModel, prompts: Sequence[list[int]], max_new_tokens: int, terminators: Collection[int]
) -> list[list[int]]:
    """Greedy answers to `prompts` (token ids), without the terminator that ended them.

    The likeliest token is taken whatever the model's `generation_config` says of penalties and forbidden tokens.
    """
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        return [_generate_by_passes(model, prompt, max_new_tokens, terminators) for prompt in prompts]
    answers = []
    greedy = GenerationConfig(
        max_new_tokens=max_new_tokens, eos_token_id=list(terminators), pad_token_id=next(iter(terminators))
    )
    with _generating_by(model, greedy):
        for prompt in prompts:
            input_ids = torch.tensor([prompt], device=model.device)
            output = model.generate(input_ids=input_ids, attention_mask=torch.ones_like(input_ids))
            output = output[0, len(prompt) :].tolist()
            end = next((place for place, token in enumerate(output) if token in terminators), len(output))
            answers.append(output[:end])
    return answers


@contextmanager
def _generating_by(model: PreTrainedModel | PeftModel, config: GenerationConfig) -> Iterator[None]:
    """With `config` in place of the model's own, whose values `model.generate` would take wherever it is given none."""
    base = model.get_base_model() if isinstance(model, PeftModel) else model
    before, base.generation_config = base.generation_config, config
    try:
        yield
    finally:
        base.generation_config = before


def _generate_by_passes(model, prompt: list[int], max_new_tokens: int, terminators: Collection[int]) -> list[int]:
    """One whole pass for each token: with an adapter that puts tokens before the prompt, PEFT's own `generate` loses
    its place in the cache from the third token on (PEFT 0.21.2 with Transformers 5.24.0)."""
    answer: list[int] = []
    for _ in range(max_new_tokens):
        logits = model(torch.tensor([prompt + answer], device=model.device), use_cache=False).logits[0, -1]
        token = int(logits.argmax())
        if token in terminators:
            break
        answer.append(token)
    return answer


@torch.no_grad()
def label_log_probabilities(
    model: PreTrainedModel, prompts: Sequence[list[int]], labels: Sequence[list[int]]
) -> torch.Tensor:
    """Log-probability of each label's tokens after each prompt: [prompts, labels], float64, on the CPU."""
    scores = completion_log_probabilities(model, prompts, [labels] * len(prompts))
    return torch.tensor([[tokens.sum() for tokens in row] for row in scores], dtype=torch.float64)


@torch.no_grad()
def completion_log_probabilities(
    model: PreTrainedModel, prompts: Sequence[list[int]], completions: Sequence[Sequence[list[int]]]
) -> list[list[torch.Tensor]]:
    """Log-probability of every token of each prompt's own completions: for each [tokens], float64, on the CPU."""
    scores: list[list[torch.Tensor]] = []
    for prompt, own in zip(prompts, completions, strict=True):
        scores.append([])
        for ids in own:
            logits = model(torch.tensor([prompt + ids], device=model.device), use_cache=False).logits[0]
            # From the end, since an adapter may put tokens of its own before the prompt.
            chosen = logits[-len(ids) - 1 : -1].log_softmax(-1, dtype=torch.float32)
            of_tokens = chosen.gather(1, torch.tensor(ids, device=model.device)[:, None]).squeeze(1)
            scores[-1].append(of_tokens.double().cpu())
    return scores
