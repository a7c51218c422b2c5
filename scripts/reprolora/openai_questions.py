"""Questions and answers from an endpoint with OpenAI's protocol."""

from collections.abc import Sequence

from reprolora.asked_questions import Answer, messages, parse_answer
from reprolora.chat_endpoint import ChatEndpoint
from reprolora.corpus import Chunk
from reprolora.pairs import Draft


class OpenAIQuestions:
    """Drafts from an endpoint whose settings are the `generator` section. It can be asked from several threads."""

    def __init__(self, endpoint: ChatEndpoint):
        self.endpoint, self.settings = endpoint, endpoint.settings
        self.attempts = self.settings["attempts"]
        self.failures: dict[str, str] = {}

    def drafts(self, chunk: Chunk, attempt: int, rejected: Sequence[Draft], wanted: int) -> list[Draft]:
        """The drafts of a chunk; none, and a word in `failures`, if the model refuses or never answers in form.

        Raises:
            UserError: the endpoint cannot be used, or the budget is spent; what was answered is kept.
        """
        said = messages(chunk, self.settings, rejected, wanted)
        drafts, reason = self.endpoint.ask(said, "pairs", Answer, parse_answer, attempt=attempt)
        if drafts is None:
            self.failures[f"{chunk.document}: {' > '.join(chunk.headings)}: {chunk.id}"] = reason
            return []
        return drafts[: wanted or self.settings["pairs_per_chunk"]]
