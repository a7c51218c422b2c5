"""From a row of data to token ids. Training and evaluation both come here, so that they cannot disagree."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle
from string import Template
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from reprolora.errors import UserError

# What stands for the n-th text of a prompt: of the private use area, where no data has anything.
_PLACEHOLDER = "\ue000{}\ue000"

# The words of the Alpaca prompt: in English those of Stanford Alpaca (Taori et al. 2023).
ALPACA = {
    "alpaca": {
        "opening": "Below is an instruction that describes a task. Write a response that appropriately completes the "
        "request.",
        "opening_with_input": "Below is an instruction that describes a task, paired with an input that provides "
        "further context. Write a response that appropriately completes the request.",
        "instruction": "### Instruction:",
        "input": "### Input:",
        "response": "### Response:",
    },
    "alpaca-zh": {
        "opening": "下面是一条描述任务的指令。请写出恰当地完成该请求的回答。",
        "opening_with_input": "下面是一条描述任务的指令，以及提供更多背景的输入。请写出恰当地完成该请求的回答。",
        "instruction": "### 指令：",
        "input": "### 输入：",
        "response": "### 回答：",
    },
}
# The same as a chat template, where a message may have an `input` beside its content. A system message stands in place
# of the opening, and an answer ends with the token that ends a sequence, earlier answers too.
_ALPACA_TEMPLATE = """\
{%- if messages[0].role == 'system' %}{{ messages[0].content }}
{%- elif messages[-1].input %}$opening_with_input
{%- else %}$opening
{%- endif %}{{ '\\n\\n' }}
{%- for message in messages if message.role != 'system' %}
{%- if message.role == 'user' %}{{ '$instruction\\n' + message.content + '\\n\\n' }}
{%- if message.input %}{{ '$input\\n' + message.input + '\\n\\n' }}{% endif %}$response
{%- else %}{{ message.content + (eos_token or '') }}{% if not loop.last %}{{ '\\n\\n' }}{% endif %}
{%- endif %}
{%- endfor %}"""


@dataclass(frozen=True)
class EncodedRow:
    """Token ids of a prompt and its completion; the completion starts at `prompt_length` and ends with a terminator."""

    ids: list[int]
    prompt_length: int

    @property
    def labels(self) -> list[int]:
        return [-100] * self.prompt_length + self.ids[self.prompt_length :]


class Encoder:
    """Turns chat messages and answers into token ids by a chat template; what the tasks' encoders share.

    Args:
        tokenizer: of the model.
        chat_template: the template, in Jinja; None for the tokenizer's own.

    The prompt is rendered up to where the assistant starts to speak, and the completion is tokenized by itself, so the
    boundary between them is exact for every tokenizer. The completion ends with the token by which the template ends an
    assistant's turn. A text of the data that spells a special token gets the tokens of its letters: data cannot end its
    own turn.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, chat_template: str | None = None):
        self.tokenizer, self.chat_template = tokenizer, chat_template or tokenizer.chat_template
        if not self.chat_template:
            raise UserError(
                f"{tokenizer.name_or_path}: the tokenizer has no chat template; use an instruct model, put a "
                "chat_template.jinja beside its files, or (for the task instruction) set prompt.template to alpaca"
            )
        self._special_texts = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
        self.renders_system = self._renders_system()
        self.terminator = self._find_terminator()

    def encode_completion(self, answer: str) -> list[int]:
        """Token ids of an answer and its terminator."""
        return [*self.answer_ids(answer), self.terminator]

    def answer_ids(self, answer: str) -> list[int]:
        """Token ids of an answer alone."""
        return self._tokenize(answer, is_data=True)

    def _encode(self, texts: Sequence[str], messages: Callable[[Sequence[str]], list[dict]]) -> list[int]:
        """Token ids of the prompt whose messages are `messages(texts)`; empty texts are none."""
        if not any(token in text for token in self._special_texts for text in texts):
            return self._tokenize(self._render(messages(texts), add_generation_prompt=True))
        places = [_PLACEHOLDER.format(position) if text else "" for position, text in enumerate(texts)]
        rendered = self._render(messages(places), add_generation_prompt=True)
        ids: list[int] = []
        for part in re.split(f"({'|'.join(filter(None, places))})", rendered):
            is_data = part in places and part != ""
            ids += self._tokenize(texts[places.index(part)] if is_data else part, is_data)
        return ids

    def _with_system(self, system: str, turns: list[dict]) -> list[dict]:
        """The turns after a system message; in the first turn where the template has none."""
        if not system:
            return turns
        if self.renders_system:
            return [{"role": "system", "content": system}, *turns]
        return [turns[0] | {"content": system + "\n\n" + turns[0]["content"]}, *turns[1:]]

    def _tokenize(self, text: str, is_data: bool = False) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False, split_special_tokens=is_data).input_ids

    def _render(self, messages: Sequence[dict], **options) -> str:
        # A reasoning model's template may open a thinking block; answers here have none, in training or evaluation.
        return self.tokenizer.apply_chat_template(
            messages, chat_template=self.chat_template, tokenize=False, enable_thinking=False, **options
        )

    def _renders_system(self) -> bool:
        """Whether the template has a system turn; some refuse it, and some leave it out silently."""
        probe = "a system turn to look for"
        try:
            text = self._render([{"role": "system", "content": probe}, {"role": "user", "content": "x"}])
        except TemplateError:
            return False
        return probe in text

    def _find_terminator(self) -> int:
        probe = "an answer to look for"
        text = self._render([{"role": "user", "content": "x"}, {"role": "assistant", "content": probe}])
        special = set(self.tokenizer.added_tokens_decoder)
        for token in self._tokenize(text.rpartition(probe)[2]):
            if token in special:
                return token
        if self.tokenizer.eos_token_id is None:
            raise UserError(
                f"{self.tokenizer.name_or_path}: neither the chat template nor the tokenizer has a token that ends an "
                "answer; give the tokenizer an eos_token"
            )
        return self.tokenizer.eos_token_id


class PromptEncoder(Encoder):
    """Encodes texts and their labels.

    Args:
        tokenizer: with a chat template.
        prompt: {"system": text or None, "user": text with `{text}`}.
        examples: rows {"text", "label"} to show before the question, each as a turn of the user and one of the
            assistant; none for zero-shot prompts and for training.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: dict, examples: Sequence[Mapping[str, Any]] = ()):
        super().__init__(tokenizer)
        self.prompt, self.examples = prompt, examples
        self.system_in_user = bool(prompt["system"]) and not self.renders_system

    def messages(self, text: str) -> list[dict]:
        """Chat messages for one text, without the answer."""
        return self._messages([example["text"] for example in self.examples] + [text])

    def _messages(self, texts: Sequence[str]) -> list[dict]:
        """The messages with `texts` in place of the examples' texts and of the one asked about, which is the last."""
        turns = []
        for position, text in enumerate(texts):
            turns.append({"role": "user", "content": self.prompt["user"].replace("{text}", text)})
            if position < len(self.examples):
                turns.append({"role": "assistant", "content": self.examples[position]["label"]})
        return self._with_system(self.prompt["system"], turns)

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids up to the place where the answer starts."""
        return self._encode([example["text"] for example in self.examples] + [text], self._messages)

    def encode(self, text: str, answer: str) -> EncodedRow:
        prompt = self.encode_prompt(text)
        return EncodedRow(prompt + self.encode_completion(answer), len(prompt))


class InstructionEncoder(Encoder):
    """Encodes rows {"instruction", "input", "output"}, perhaps with "system" and "history".

    Args:
        tokenizer: with a chat template, unless the prompt's is Alpaca's.
        prompt: {"template": "chat" for the tokenizer's own, "alpaca" or "alpaca-zh"; "system": text or None}, where a
            row's own system message goes before the prompt's.

    A question of the history is a turn of the user, its answer one of the assistant. In a chat, the input stands after
    the instruction and a blank line; Alpaca has a heading for it.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: dict):
        self.is_chat = prompt["template"] == "chat"
        super().__init__(tokenizer, None if self.is_chat else alpaca_template(prompt["template"], tokenizer))
        self.prompt = prompt
        self.system_in_user = bool(prompt["system"]) and not self.renders_system

    def messages(self, row: Mapping[str, Any]) -> list[dict]:
        """Chat messages for one row, without the answer."""
        return self._messages(self._texts(row))

    def _texts(self, row: Mapping[str, Any]) -> list[str]:
        system = row.get("system") or self.prompt["system"] or ""
        return [system, *chain.from_iterable(row.get("history") or ()), row["instruction"], row["input"]]

    def _messages(self, texts: Sequence[str]) -> list[dict]:
        system, *spoken, input_ = texts
        turns = [
            {"role": role, "content": text} for role, text in zip(cycle(("user", "assistant")), spoken, strict=False)
        ]
        if input_ and self.is_chat:
            turns[-1]["content"] += "\n\n" + input_
        elif input_:
            turns[-1]["input"] = input_
        return self._with_system(system, turns)

    def encode_prompt(self, row: Mapping[str, Any]) -> list[int]:
        """Token ids up to the place where the answer starts."""
        return self._encode(self._texts(row), self._messages)

    def encode(self, row: Mapping[str, Any]) -> EncodedRow:
        prompt = self.encode_prompt(row)
        return EncodedRow(prompt + self.encode_completion(row["output"]), len(prompt))


def alpaca_template(name: str, tokenizer: PreTrainedTokenizerBase) -> str:
    """An Alpaca prompt as a chat template, behind the token that the tokenizer begins every sequence with, if any."""
    template = Template(_ALPACA_TEMPLATE).substitute(ALPACA[name])
    begins = tokenizer("x").input_ids[0] == tokenizer.bos_token_id
    return "{{ bos_token }}" + template if begins else template


def encode_rows(encoder: PromptEncoder, rows: Sequence[dict], max_length: int, file: str) -> list[EncodedRow]:
    """Encode rows {"id", "text", "label"}; refuse those that `max_length` would cut.

    The completion stands at the end, so a cut row loses its label: the loss would show 0 and the run look fine.

    Raises:
        UserError: names the rows that are longer than `max_length` tokens, and the length that would do.
    """
    encoded = [encoder.encode(row["text"], row["label"]) for row in rows]
    cut = [(row["id"], len(e.ids)) for row, e in zip(rows, encoded, strict=True) if len(e.ids) > max_length]
    if cut:
        names = ", ".join(str(name) for name, _ in cut[:5]) + (", ..." if len(cut) > 5 else "")
        raise UserError(
            f"{file}: {len(cut)} of {len(rows)} rows are longer than training.max_length {max_length} and would lose "
            f"their label (rows {names}); set max_length to {max(length for _, length in cut)} or shorten these texts"
        )
    return encoded


@dataclass(frozen=True)
class FittedRows:
    """Encoded rows that are no longer than `max_length`, and the ids of those that had to be cut or left out for it."""

    encoded: list[EncodedRow]
    truncated: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def fit_rows(encoder: InstructionEncoder, rows: Sequence[Mapping[str, Any]], max_length: int, file: str) -> FittedRows:
    """Encode rows of instructions; a longer one loses the end of its answer, with the terminator, so that it does not
    teach to stop there. A row whose prompt alone is as long has nothing to learn from and is left out.

    Raises:
        UserError: no row is left; names the length that would do for all.
    """
    whole = [encoder.encode(row) for row in rows]
    kept = [(row["id"], e) for row, e in zip(rows, whole, strict=True) if e.prompt_length < max_length]
    if not kept:
        raise UserError(
            f"{file}: none of the {len(rows)} rows keeps a token of its answer within training.max_length {max_length};"
            f" set max_length to {max(len(row.ids) for row in whole)}, or shorten the instructions"
        )
    return FittedRows(
        [EncodedRow(e.ids[:max_length], e.prompt_length) for _, e in kept],
        [name for name, e in kept if len(e.ids) > max_length],
        [row["id"] for row, e in zip(rows, whole, strict=True) if e.prompt_length >= max_length],
    )
