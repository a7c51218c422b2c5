"""Questions and answers from a model on this machine, through the same prompts and engine as everything else."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reprolora import models
from reprolora.answer_store import AnswerStore
from reprolora.asked_questions import messages, parse_answer
from reprolora.corpus import Chunk
from reprolora.devices import claim_device
from reprolora.evaluation import Asker
from reprolora.files import sha256_of
from reprolora.pairs import Draft
from reprolora.precision import choose_precision
from reprolora.prompts import PromptEncoder
from reprolora.structured import Malformed

PART = 64  # chunks that are asked about before their answers are stored


class LocalQuestions:
    """Drafts from a model of the catalogue, decoded greedily; what it said once is read from the store.

    Args:
        manifest: of the model; its content is part of what an answer depends on.
        settings: the `generator` section of the configuration, and the accelerator.
        store: holds the answers.
    """

    attempts = 1  # asked again, it would say the same

    def __init__(self, manifest: Path, settings: Mapping[str, Any], store: AnswerStore):
        self.settings, self.store = dict(settings), store
        self.failures: dict[str, str] = {}
        self._manifest, self._model_sha256 = manifest, sha256_of(manifest)

    def answer(self, chunks: Sequence[Chunk]) -> None:
        """Ask the model about the chunks that the store has no answer for, many at once."""
        missing = [chunk for chunk in chunks if self.store.get(self._request(chunk)) is None]
        if not missing:
            return
        models.quiet_libraries()
        device = claim_device(self.settings["accelerator"])
        folder = models.model_folder(self._manifest)
        precision = choose_precision(self.settings["precision"], device)["chosen"]
        model = models.load_base(folder, precision, device)
        system = messages(missing[0], self.settings)[0]["content"]
        encoder = PromptEncoder(models.load_tokenizer(folder), {"system": system, "user": "{text}"})
        asker = Asker(model.eval(), encoder, [])
        # In parts, so that a run that is stopped has not worked for nothing.
        for start in range(0, len(missing), PART):
            part = missing[start : start + PART]
            texts = [messages(chunk, self.settings)[1]["content"] for chunk in part]
            for chunk, text in zip(part, asker.generate(texts, self.settings["max_tokens"]), strict=True):
                self.store.put(self._request(chunk), {"content": text})
            logging.info("asked about %d of %d chunks", start + len(part), len(missing))

    def drafts(self, chunk: Chunk, attempt: int, rejected: Sequence[Draft], wanted: int) -> list[Draft]:
        """The drafts of a chunk that was asked about; none, and a word in `failures`, if the answer has no form."""
        try:
            return parse_answer(self.store.get(self._request(chunk))["content"])[: self.settings["pairs_per_chunk"]]
        except Malformed as error:
            place = f"{chunk.document}: {' > '.join(chunk.headings)}: {chunk.id}"
            self.failures[place] = f"malformed answer: {error}"
            return []

    def _request(self, chunk: Chunk) -> dict[str, Any]:
        asked = {key: self.settings[key] for key in ("max_tokens", "precision", "accelerator")}
        return asked | {"model_sha256": self._model_sha256, "messages": messages(chunk, self.settings)}
