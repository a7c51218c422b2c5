"""From a row of data to token ids. Training and evaluation both come here, so that they cannot disagree."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from reprolora.errors import UserError

# What stands for the n-th text of a prompt: of the private use area, where no data has anything.
_PLACEHOLDER = "\ue000{}\ue000"


@dataclass(frozen=True)
class EncodedRow:
    """Token ids of a prompt and its completion; the completion starts at `prompt_length` and ends with a terminator."""

    ids: list[int]
    prompt_length: int

    @property
    def labels(self) -> list[int]:
        return [-100] * self.prompt_length + self.ids[self.prompt_length :]


class PromptEncoder:
    """Turns texts and answers into token ids by the model's chat template.

    Args:
        tokenizer: with a chat template.
        prompt: {"system": text or None, "user": text with `{text}`}.
        examples: rows {"text", "label"} to show before the question, each as a turn of the user and one of the
            assistant; none for zero-shot prompts and for training.

    The prompt is rendered up to where the assistant starts to speak, and the completion is tokenized by itself, so the
    boundary between them is exact for every tokenizer. The completion ends with the token by which the template ends an
    assistant's turn.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: dict, examples: Sequence[Mapping[str, Any]] = ()):
        self.tokenizer, self.prompt, self.examples = tokenizer, prompt, examples
        self._special_texts = [str(token) for token in tokenizer.added_tokens_decoder.values() if token.special]
        self.system_in_user = bool(prompt["system"]) and not self._renders_system()
        self.terminator = self._find_terminator()

    def messages(self, text: str) -> list[dict]:
        """Chat messages for one text, without the answer."""
        return self._messages([example["text"] for example in self.examples] + [text])

    def _messages(self, texts: Sequence[str]) -> list[dict]:
        """The messages with `texts` in place of the examples' texts and of the one asked about, which is the last."""
        system, turns = self.prompt["system"], []
        for position, text in enumerate(texts):
            turns.append({"role": "user", "content": self.prompt["user"].replace("{text}", text)})
            if position < len(self.examples):
                turns.append({"role": "assistant", "content": self.examples[position]["label"]})
        if not system:
            return turns
        if self.system_in_user:
            turns[0]["content"] = system + "\n\n" + turns[0]["content"]
            return turns
        return [{"role": "system", "content": system}, *turns]

    def encode_prompt(self, text: str) -> list[int]:
        """Token ids up to the place where the answer starts.

        A text that spells a special token gets the tokens of its letters: data cannot end its own turn.
        """
        texts = [example["text"] for example in self.examples] + [text]
        if not any(token in text for token in self._special_texts for text in texts):
            return self._tokenize(self._render(self._messages(texts), add_generation_prompt=True))
        places = [_PLACEHOLDER.format(position) for position in range(len(texts))]
        rendered = self._render(self._messages(places), add_generation_prompt=True)
        ids: list[int] = []
        for part in re.split(f"({'|'.join(places)})", rendered):
            if part in places:
                own = texts[places.index(part)]
                ids += self.tokenizer(own, add_special_tokens=False, split_special_tokens=True).input_ids
            else:
                ids += self._tokenize(part)
        return ids

    def encode_completion(self, answer: str) -> list[int]:
        """Token ids of an answer and its terminator."""
        return [*self.answer_ids(answer), self.terminator]

    def answer_ids(self, answer: str) -> list[int]:
        """Token ids of an answer alone."""
        return self._tokenize(answer)

    def encode(self, text: str, answer: str) -> EncodedRow:
        prompt = self.encode_prompt(text)
        return EncodedRow(prompt + self.encode_completion(answer), len(prompt))

    def _tokenize(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def _render(self, messages: Sequence[dict], **options) -> str:
        # A reasoning model's template may open a thinking block; a label needs none, in training or evaluation.
        return self.tokenizer.apply_chat_template(messages, tokenize=False, enable_thinking=False, **options)

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
