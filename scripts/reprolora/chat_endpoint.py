"""Answers in a form that is asked for from an endpoint with OpenAI's protocol: within a budget, and none asked twice.

Every answer that was received is stored before it is read, malformed ones and refusals too, since it may have been paid
for. A run that starts again reads them in the same order and goes on where it was stopped.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import openai
from openai.types.chat import ChatCompletion
from pydantic import BaseModel

from reprolora.answer_store import AnswerStore
from reprolora.errors import UserError
from reprolora.structured import Malformed

# Failures that may be over when the request is sent again.
PASSING = (openai.APIConnectionError, openai.RateLimitError, openai.InternalServerError)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Garbled(Exception):
    """An HTTP answer that is not the protocol's."""


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item], parallel: int) -> Iterator[Result]:
    """The results in the order of the items, with so many under way at once; an error ends the others that wait."""
    with ThreadPoolExecutor(parallel) as pool:
        waiting = [pool.submit(function, item) for item in items]
        try:
            for future in waiting:
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class ChatEndpoint:
    """A model at an endpoint. Its methods can be called from several threads.

    Args:
        settings: a section of the configuration with the keys of `Endpoint` there.
        section: that section's name, for messages.
        store: holds the answers; what was spent is the sum over them.
        environment: holds the key.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        section: str,
        store: AnswerStore,
        environment: Mapping[str, str] = os.environ,
    ):
        self.settings, self.section, self.store = dict(settings), section, store
        self._key = environment.get(settings["key_variable"], "").strip()
        self._client: openai.OpenAI | None = None
        self._lock = threading.Lock()
        self._stopped, self._reason = threading.Event(), ""
        answers = list(store.answers())
        self.sent = 0
        self.requests = len(answers)
        self.dollars = sum(map(self._price, answers))
        self._unpriced = any(answer["usage"] is None for answer in answers)
        self._reserved, self._under_way = 0.0, 0  # dollars and requests

    def spent(self) -> dict[str, Any]:
        """What all stored answers took, and this run's requests."""
        return {"answered_requests": self.requests, "dollars": round(self.dollars, 6), "sent_in_this_run": self.sent}

    def ask(
        self,
        said: list[dict[str, str]],
        name: str,
        form: type[BaseModel],
        read: Callable[[str | None], Result],
        **occasion: Any,
    ) -> tuple[Result | None, str]:
        """What `read` makes of the answer to the chat messages `said`; or None, if the model refuses or never answers
        in form, and a word why.

        Args:
            said: the chat messages.
            name, form: of the JSON that is asked for.
            read: raises Malformed for an answer that has not that form.
            occasion: what else tells this request from another with the same messages.

        Raises:
            UserError: the endpoint cannot be used, or the budget is spent; what was answered is kept.
        """
        reason = ""
        for number in range(self.settings["tries"]):
            request = self._request(said, name, form) | occasion | {"try": number}
            answer = self.store.get(request)
            if answer is None:
                answer = self._ask(request)
            if answer["refusal"] or answer["finish_reason"] == "content_filter":
                return None, f"refused: {answer['refusal'] or 'content filter'}"
            try:
                return read(answer["content"]), ""
            except Malformed as error:
                cut = answer["finish_reason"] == "length"
                reason = f"cut off by {self.section}.max_tokens; raise it" if cut else f"malformed answer: {error}"
        return None, reason

    def _request(self, said: list[dict[str, str]], name: str, form: type[BaseModel]) -> dict[str, Any]:
        """All that an answer depends on; the key is no part of it."""
        settings = self.settings
        body: dict[str, Any] = {
            "model": settings["model"],
            "messages": said,
            "max_completion_tokens": settings["max_tokens"],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": name, "strict": True, "schema": form.model_json_schema()},
            },
        }
        if settings["temperature"] is not None:
            body["temperature"] = settings["temperature"]
        return {"base_url": settings["base_url"], "body": body}

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request, again after a failure that may pass, and store the answer."""
        tries = self.settings["tries"]
        for number in range(tries):
            reserved = self._reserve(request)
            try:
                answer = self._send(request["body"])
            except (_Garbled, *PASSING) as error:
                self._release(reserved)
                if getattr(error, "code", None) == "insufficient_quota":
                    raise self._stop("the account has no quota left; top it up and run again") from None
                if number == tries - 1:
                    raise self._stop(
                        f"{self._shown(error)}, {tries} times in a row; check the endpoint and run again"
                    ) from None
                pause = self._pause(error, number)
                logging.warning("%s; trying again in %.0f s", self._shown(error), pause)
                if self._stopped.wait(pause):
                    raise self._stop(self._reason) from None
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                self._release(reserved)
                raise self._stop(
                    f"the endpoint does not accept the key ({error.status_code}); "
                    f"put a valid one into the environment variable {self.settings['key_variable']} and run again"
                ) from None
            except openai.OpenAIError as error:
                self._release(reserved)
                raise self._stop(
                    f"{self._shown(error)}; check {self.section}.model and {self.section}.base_url"
                ) from None
            else:
                self.store.put(request, answer)
                with self._lock:
                    self.requests += 1
                    self.dollars += self._price(answer)
                    self._unpriced |= answer["usage"] is None
                self._release(reserved)
                return answer
        raise AssertionError("the last try returns or raises")

    def _send(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            self.sent += 1
            client = self._connect()
        try:
            completion = client.chat.completions.create(**body)
        except ValueError:
            raise _Garbled from None
        if not isinstance(completion, ChatCompletion) or not completion.choices:
            raise _Garbled
        choice, usage = completion.choices[0], completion.usage
        return {
            "content": choice.message.content,
            "refusal": choice.message.refusal,
            "finish_reason": choice.finish_reason,
            "usage": {"input": usage.prompt_tokens, "output": usage.completion_tokens} if usage else None,
        }

    def _connect(self) -> openai.OpenAI:
        if self._client is None:
            if not self._key:
                raise self._stop(f"set the environment variable {self.settings['key_variable']} to the endpoint's key")
            logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line for each request would fill the log
            self._client = openai.OpenAI(
                api_key=self._key, base_url=self.settings["base_url"], timeout=self.settings["timeout"], max_retries=0
            )
        return self._client

    # Money

    def _price(self, answer: Mapping[str, Any]) -> float:
        prices, usage = self.settings["prices"], answer["usage"]
        if not prices or not usage:
            return 0.0
        return (usage["input"] * prices["input"] + usage["output"] * prices["output"]) / 1e6

    def _reserve(self, request: dict[str, Any]) -> float:
        """Make room in the budget for what a request can cost at most, with those that are under way."""
        budget, prices = self.settings["budget"], self.settings["prices"]
        most = 0.0
        if prices:
            # A token for each byte of all that is sent: more than the endpoint will count.
            tokens = len(json.dumps(request["body"], ensure_ascii=False).encode())
            most = (tokens * prices["input"] + self.settings["max_tokens"] * prices["output"]) / 1e6
        with self._lock:
            if budget["requests"] is not None and self.requests + self._under_way >= budget["requests"]:
                raise self._stop(
                    f"the budget of {budget['requests']} requests is spent; raise {self.section}.budget.requests"
                )
            if budget["dollars"] is not None and self._unpriced:
                raise self._stop(
                    "the endpoint does not say how many tokens an answer took, so nobody can tell what is spent; set "
                    f"{self.section}.budget.requests in place of dollars"
                )
            if budget["dollars"] is not None and self.dollars + self._reserved + most > budget["dollars"]:
                spent = f"{self.dollars:.4f} of the budget of {budget['dollars']:g} dollars are spent"
                raise self._stop(f"{spent}, and a request could take {most:.4f}; raise {self.section}.budget.dollars")
            if self._stopped.is_set():
                raise self._stop(self._reason)
            self._reserved += most
            self._under_way += 1
        return most

    def _release(self, reserved: float) -> None:
        with self._lock:
            self._reserved -= reserved
            self._under_way -= 1

    # Trouble

    def _stop(self, reason: str) -> UserError:
        """The error that ends the run; other threads stop too. The answers so far are on disk."""
        if not self._stopped.is_set():
            self._reason = self._without_key(reason)
            self._stopped.set()
        return UserError(
            f"{self.settings['base_url']}: {self._reason} ({self.requests} answers are kept and will not "
            "be asked for again)"
        )

    def _pause(self, error: Exception, number: int) -> float:
        """Seconds to wait: what the endpoint says, or twice as long each time."""
        response = getattr(error, "response", None)
        told = response.headers.get("retry-after") if response is not None else None
        try:
            return min(max(float(told), 0.0), LONGEST_PAUSE)
        except (TypeError, ValueError):
            return min(FIRST_PAUSE * 2**number, LONGEST_PAUSE)

    def _shown(self, error: Exception) -> str:
        """An error in a few words, without the key, which some endpoints repeat."""
        if isinstance(error, openai.APITimeoutError):
            return f"no answer within {self.settings['timeout']:g} s"
        if isinstance(error, openai.APIStatusError):
            return self._without_key(f"the endpoint answered {error.status_code}: {error.message[:300]}")
        if isinstance(error, _Garbled):
            return "the endpoint answered something that is not a chat completion"
        return self._without_key(f"no connection ({type(error.__cause__ or error).__name__})")

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "[key]") if self._key else text
