"""Questions from a model on this machine: the prompt, the store, and answers that have no form."""

import json

import pytest

import tiny
from reprolora import local_questions
from reprolora.answer_store import AnswerStore
from reprolora.asked_questions import messages
from reprolora.corpus import Chunk
from reprolora.local_questions import LocalQuestions
from reprolora.model_files import write_manifest
from reprolora.pairs import make_pairs

SETTINGS = {
    "kind": "local",
    "subject": None,
    "model": "tiny",
    "instructions": "Ask.",
    "pairs_per_chunk": 2,
    "max_tokens": 4,
    "precision": "fp32",
    "accelerator": "cpu",
}


def chunk(number: int) -> Chunk:
    text = f"Pump {number} needs oil."
    return Chunk(f"c{number}", "a.md", ("Pumps",), 0, len(text), 5, text)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tiny.model(max_position_embeddings=2048).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    write_manifest(folder, {"source": "tiny"})
    return folder / "manifest.json"


def test_a_model_is_asked_once_for_each_chunk(manifest, tmp_path, monkeypatch):
    store = AnswerStore(tmp_path)
    first = LocalQuestions(manifest, SETTINGS, store)
    first.answer([chunk(1), chunk(2)])
    assert len(list(store.answers())) == 2
    # A random model answers nothing that has the form.
    assert make_pairs(chunk(1), first, ()) == []
    assert list(first.failures) == ["a.md: Pumps: c1"] and "malformed answer" in first.failures["a.md: Pumps: c1"]

    loaded = []
    monkeypatch.setattr(local_questions.models, "load_base", lambda *a: loaded.append(a) or tiny.model())
    LocalQuestions(manifest, SETTINGS, store).answer([chunk(1), chunk(2)])
    assert not loaded, "what the store has is not asked again"
    LocalQuestions(manifest, SETTINGS, store).answer([chunk(1), chunk(3)])
    assert len(loaded) == 1 and len(list(store.answers())) == 3


def test_the_answer_to_the_same_messages_becomes_pairs(manifest, tmp_path, monkeypatch):
    """What the model is shown is the chat template around the messages that an endpoint would get."""
    asked = []

    def generate(model, prompts, max_new_tokens, terminators, batch_tokens=None):
        asked.extend(tiny.tokenizer().decode(prompt) for prompt in prompts)
        answer = json.dumps({"pairs": [{"question": f"Q{n}", "answer": "Pump needs oil"} for n in range(3)]})
        return [tiny.tokenizer()(f"```json\n{answer}\n```").input_ids for _ in prompts]

    monkeypatch.setattr("reprolora.engine.answers.generate", generate)
    asking = LocalQuestions(manifest, SETTINGS, AnswerStore(tmp_path))
    asking.answer([chunk(1)])
    pairs = make_pairs(chunk(1), asking, ())
    assert [(pair.instruction, pair.output, pair.support) for pair in pairs] == [
        ("Q0", "Pump needs oil", 1.0),
        ("Q1", "Pump needs oil", 1.0),
    ]
    said = messages(chunk(1), SETTINGS)
    assert asked == [
        tiny.tokenizer().apply_chat_template(said, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    ]
