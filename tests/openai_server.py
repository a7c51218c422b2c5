"""A stand-in for an endpoint with OpenAI's protocol: chat completions with a JSON schema, and their failures.

`script` says how the next requests are answered, in order; after it, every request gets a proper answer. A word of the
script is a status code ("429"), a failure of the content ("malformed", "refusal", "length", "filter", "empty"), "html"
for an answer that is not JSON, "hang" for none, or "ok".
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sk-test-0123456789"


@dataclass
class OpenAIServer:
    """`requests` holds the body of each request, `answered` how many got an answer that is paid for; `better` says
    which of two answers to compare is better, A, B or tie: by itself, the longer one."""

    script: list[str] = field(default_factory=list)
    requests: list[dict] = field(default_factory=list)
    answered: int = 0
    retry_after: str | None = "0"
    usage: dict | None = field(default_factory=lambda: {"prompt_tokens": 100, "completion_tokens": 50})
    better: Callable[[str, str], str] = lambda a, b: "tie" if len(a) == len(b) else "AB"[len(b) > len(a)]
    hanging: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def word(self, body: dict) -> str:
        with self.lock:
            self.requests.append(body)
            return self.script.pop(0) if self.script else "ok"

    def completion(self, word: str, body: dict) -> dict:
        """A completion in the form that was asked for: questions and answers, or a comparison of two answers."""
        with self.lock:
            self.answered += 1
        if body["response_format"]["json_schema"]["name"] == "comparison":
            answers = re.findall(r"<answer_[AB]>\n(.*?)\n</answer_", body["messages"][1]["content"], re.DOTALL)
            content: str | None = json.dumps({"reason": "It is.", "better": self.better(*answers)})
        else:
            content = self.pairs(body)
        content = {"malformed": content[:-5], "empty": '{"pairs": []}', "refusal": None}.get(word, content)
        message = {"role": "assistant", "content": content, "refusal": "I will not." if word == "refusal" else None}
        finish = {"length": "length", "filter": "content_filter"}.get(word, "stop")
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
            "usage": self.usage and self.usage | {"total_tokens": sum(self.usage.values())},
        }

    def pairs(self, body: dict) -> str:
        """Questions that quote the text that was asked about."""
        text = body["messages"][1]["content"].rpartition("\n\n")[2]
        count = int(body["messages"][1]["content"].split()[1])
        attempt = "again" * ("rejected" in body["messages"][1]["content"])
        pairs = [{"question": f"{attempt}Question {n}: {text[:20]}?", "answer": text} for n in range(count)]
        return json.dumps({"pairs": pairs})

    @contextmanager
    def running(self) -> Iterator["OpenAIServer"]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            yield self
        finally:
            self.hanging.set()
            server.shutdown()
            server.server_close()
            thread.join()


def _handler(stand_in: OpenAIServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path != "/v1/chat/completions":
                self.send_error(404)
                return
            word = stand_in.word(body)
            sent = self.headers.get("Authorization", "").removeprefix("Bearer ")
            if sent != KEY:
                message = f"Incorrect API key provided: {sent}"  # as the real endpoint does, it repeats the key
                self.answer(401, {"error": {"message": message, "code": "invalid_api_key"}})
            elif word == "hang":
                stand_in.hanging.wait()
                self.close_connection = True
            elif word == "html":
                self.answer(200, "<html>Welcome to the proxy</html>")
            elif word == "quota":
                self.answer(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}})
            elif word.isdigit():
                self.answer(int(word), {"error": {"message": f"failure {word}", "code": None}})
            else:
                self.answer(200, stand_in.completion(word, body))

        def answer(self, status: int, content: dict | str) -> None:
            data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
            self.send_response(status)
            if status == 429 and stand_in.retry_after is not None:
                self.send_header("Retry-After", stand_in.retry_after)
            self.send_header("Content-Type", "text/html" if isinstance(content, str) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: object) -> None:
            pass

    return Handler
