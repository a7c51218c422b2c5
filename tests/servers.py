"""Stand-ins on the loopback for the servers that sources are fetched from: enough of each protocol for real clients.

Each counts its requests and refuses to answer more than `LIMIT` of them, so that a client that would try for ever
fails the test instead. `break_after[path] = n` makes every answer for a file end, unannounced, once it has sent the
file up to byte n; `times` says how often.
"""

import base64
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urlsplit

LIMIT = 100


@dataclass
class Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    file: str = ""  # the name under which the answer can be told to break off


@dataclass
class Server:
    """What all stand-ins share. `requests` holds (method, path with query, Range header) of each request."""

    url: str = ""
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    break_after: dict[str, int] = field(default_factory=dict)
    times: int = LIMIT
    corrupt: set[str] = field(default_factory=set)

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        raise NotImplementedError

    def allow(self, path: str, authorization: str | None) -> bool:
        """Whether a request with this Authorization header may be answered."""
        return True

    def receive(self, method: str, path: str, body: bytes) -> Answer:
        """The answer to a request that sends something."""
        return Answer(405)

    def file_answer(self, name: str, body: bytes, **headers: str) -> Answer:
        if name in self.corrupt:
            body = bytes([body[0] ^ 1]) + body[1:]
        return Answer(body=body, headers={"Accept-Ranges": "bytes", **headers}, file=name)

    def fetched(self, text: str) -> list[str | None]:
        """The Range headers of the GET requests whose path has `text` in it."""
        return [asked for method, path, asked in self.requests if method == "GET" and text in path]

    @contextmanager
    def running(self) -> Iterator["Server"]:
        server = _Quiet(("127.0.0.1", 0), _handler(self))
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client may hang up
            super().handle_error(request, client_address)


def _handler(stand_in: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            asked = self.headers.get("Range")
            stand_in.requests.append((self.command, self.path, asked))
            if len(stand_in.requests) > LIMIT:
                self.send_error(500, "too many requests")
                return
            query = {key: values[0] for key, values in parse_qs(split.query).items()}
            if not stand_in.allow(split.path, self.headers.get("Authorization")):
                answer = Answer(401, b'{"error": "Invalid username or password."}')
            elif self.command in ("GET", "HEAD"):
                answer = stand_in.answer(unquote(split.path), query)
            else:
                answer = stand_in.receive(self.command, unquote(split.path), self._body())
            start, status = 0, answer.status
            if asked and answer.file and status == 200:
                start, status = int(asked.removeprefix("bytes=").split("-")[0]), 206
            self.send_response(status)
            if status == 206:
                self.send_header("Content-Range", f"bytes {start}-{len(answer.body) - 1}/{len(answer.body)}")
            self.send_header("Content-Length", str(len(answer.body) - start))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            stop = stand_in.break_after.get(answer.file)
            if stop is not None and stand_in.times > 0:
                stand_in.times -= 1
                self.wfile.write(answer.body[start:stop])
                self.close_connection = True
            else:
                self.wfile.write(answer.body[start:])

        do_HEAD = do_POST = do_PUT = do_GET

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body

        def log_message(self, *args: object) -> None:
            pass

    return Handler


@dataclass
class PackageIndex(Server):
    """A package index with the simple API. `files[package][filename]`; `told` hashes can be left out or wrong."""

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    told: dict[str, str | None] = field(default_factory=dict)

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        kind, _, name = path.strip("/").partition("/")
        if kind == "simple" and name in self.files:
            links = []
            for file, body in self.files[name].items():
                told = self.told.get(file, hashlib.sha256(body).hexdigest())
                links.append(f'<a href="/files/{name}/{file}{f"#sha256={told}" if told else ""}">{file}</a>')
            page = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>"
            return Answer(body=page.encode(), headers={"Content-Type": "text/html"})
        package, _, file = name.partition("/")
        if kind == "files" and file in self.files.get(package, {}):
            return self.file_answer(file, self.files[package][file])
        return Answer(404)


@dataclass
class Repositories(Server):
    """What the two hubs share: `repositories[(kind, name, revision)][path]`."""

    repositories: dict[tuple[str, str, str], dict[str, bytes]] = field(default_factory=dict)
    large: int = 100  # files from this size on are kept outside git, known by their sha256


@dataclass
class HuggingFaceHub(Repositories):
    """The Hugging Face Hub's listing of a revision, and its files with the headers that the client insists on."""

    gated: bool = False

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        if self.gated:
            return Answer(403, headers={"X-Error-Code": "GatedRepo"})
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) < 6:
            return Answer(404)
        if parts[0] == "api":
            kind, name, revision = parts[1].removesuffix("s"), "/".join(parts[2:4]), parts[5]
        else:
            kind = "dataset" if parts[0] == "datasets" else "model"
            parts = parts[1:] if kind == "dataset" else parts
            name, revision = "/".join(parts[:2]), parts[3]
        if not any(known[:2] == (kind, name) for known in self.repositories):
            return Answer(404, headers={"X-Error-Code": "RepoNotFound"})
        files = self.repositories.get((kind, name, revision))
        if files is None:
            return Answer(404, headers={"X-Error-Code": "RevisionNotFound"})
        if parts[0] == "api":
            siblings = [self._listed(file, body) for file, body in files.items()]
            return Answer(body=json.dumps({"id": name, "sha": revision, "siblings": siblings}).encode())
        file = "/".join(parts[4:])
        if file not in files:
            return Answer(404, headers={"X-Error-Code": "EntryNotFound"})
        body = files[file]
        etag = hashlib.sha256(body).hexdigest() if len(body) >= self.large else _git_sha1(body)
        return self.file_answer(file, body, **{"X-Repo-Commit": revision, "ETag": f'"{etag}"'})

    def _listed(self, file: str, body: bytes) -> dict:
        entry: dict = {"rfilename": file, "size": len(body), "blobId": _git_sha1(body)}
        if len(body) >= self.large:
            entry["lfs"] = {"sha256": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
        return entry


@dataclass
class ModelScopeHub(Repositories):
    """ModelScope's listing of a revision, and its files."""

    hashes: bool = True  # whether it lists them

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        parts = path.strip("/").split("/")
        if parts[:2] != ["api", "v1"] or len(parts) < 6:
            return Answer(404, body=b"{}")
        kind, name = parts[2].removesuffix("s"), "/".join(parts[3:5])
        files = self.repositories.get((kind, name, query.get("Revision", "")))
        if files is None:
            return Answer(404, body=json.dumps({"Code": 10010205001, "Message": "not found"}).encode())
        if parts[5:] == (["repo", "tree"] if kind == "dataset" else ["repo", "files"]):
            listed = [
                {"Path": file, "Type": "blob", "Size": len(body), "Sha256": hashlib.sha256(body).hexdigest()}
                | ({} if self.hashes else {"Sha256": ""})
                for file, body in files.items()
            ]
            return Answer(body=json.dumps({"Code": 200, "Success": True, "Data": {"Files": listed}}).encode())
        file = query.get("FilePath", "")
        return self.file_answer(file, files[file]) if file in files else Answer(404, body=b"{}")


@dataclass
class Uploads:
    """What a hub that takes uploads has besides: one user's token, and the repositories that were made."""

    token: str = "hf_secret_of_a_test"
    private: dict[tuple[str, str], bool] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    licences: dict[tuple[str, str], str] = field(default_factory=dict)
    damage: set[str] = field(default_factory=set)  # files that arrive with another first byte
    full: bool = False  # no upload is taken
    branch = "main"

    def allow(self, path: str, authorization: str | None) -> bool:
        # The address of a blob is the permission to put it there.
        return path.startswith("/blobs/") or authorization == f"Bearer {self.token}"

    def make(self, kind: str, name: str, private: bool, files: dict[str, bytes] | None = None) -> None:
        self.private[kind, name] = private
        self.repositories[kind, name, self.branch] = dict(files or {})

    def held(self, kind: str, name: str) -> dict[str, bytes]:
        return self.repositories[kind, name, self.branch]

    def put(self, kind: str, name: str, path: str, body: bytes) -> None:
        self.held(kind, name)[path] = bytes([body[0] ^ 1]) + body[1:] if path in self.damage else body

    def take_blob(self, oid: str, body: bytes) -> Answer:
        assert hashlib.sha256(body).hexdigest() == oid
        self.blobs[oid] = body
        return Answer(body=b"{}")

    def offer_blobs(self, objects: list[dict], **more: object) -> dict:
        """What the batch request of git-lfs is answered: where to put the blobs that are not there yet."""
        actions = {item["oid"]: {"upload": {"href": f"{self.url}/blobs/{item['oid']}"}} for item in objects}
        answered = [
            {"oid": item["oid"], "size": item["size"]}
            | ({"actions": actions[item["oid"]]} if item["oid"] not in self.blobs else {})
            for item in objects
        ]
        return {"objects": answered, **more}


@dataclass
class HuggingFaceUploads(Uploads, HuggingFaceHub):
    """The Hugging Face Hub as one uploads to it: login, new repositories, git-lfs, commits."""

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        parts = path.strip("/").split("/")
        if path == "/api/whoami-v2":
            return _json({"type": "user", "name": "me", "orgs": [], "auth": {"accessToken": {"role": "write"}}})
        if parts[0] == "api" and len(parts) == 4:
            kind, name = parts[1].removesuffix("s"), "/".join(parts[2:])
            if (kind, name) not in self.private:
                return Answer(404, headers={"X-Error-Code": "RepoNotFound"})
            siblings = [self._listed(file, body) for file, body in self.held(kind, name).items()]
            return _json({"id": name, "sha": "c" * 40, "private": self.private[kind, name], "siblings": siblings})
        return HuggingFaceHub.answer(self, path, query)

    def receive(self, method: str, path: str, body: bytes) -> Answer:
        parts = path.strip("/").split("/")
        if parts[0] == "blobs":
            return Answer(507) if self.full else self.take_blob(parts[1], body)
        if path == "/api/validate-yaml":
            return _json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            told = json.loads(body)
            name = f"{told['organization']}/{told['name']}"
            self.make(told.get("type", "model"), name, told["visibility"] == "private", {".gitattributes": b"*\n"})
            return _json({"url": f"{self.url}/{'datasets/' if told.get('type') == 'dataset' else ''}{name}"})
        if path.endswith(".git/info/lfs/objects/batch"):
            return _json(self.offer_blobs(json.loads(body)["objects"], transfer="basic"))
        kind, name = parts[1].removesuffix("s"), "/".join(parts[2:4])
        if parts[4] == "preupload":
            files = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["size"] >= self.large else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            return _json({"files": files})
        assert parts[4] == "commit"
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                self.put(kind, name, value["path"], base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                self.put(kind, name, value["path"], self.blobs[value["oid"]])
        return _json({"commitUrl": f"{self.url}/{name}/commit/{'c' * 40}", "commitOid": "c" * 40, "success": True})


@dataclass
class ModelScopeUploads(Uploads, ModelScopeHub):
    """ModelScope as one uploads to it."""

    branch = "master"

    def answer(self, path: str, query: dict[str, str]) -> Answer:
        parts = path.strip("/").split("/")
        if path == "/openapi/v1/users/me":
            return _json({"success": True, "data": {"preferred_username": "me"}})
        if parts[:2] == ["openapi", "v1"] or len(parts) == 5:
            kind, name = parts[2].removesuffix("s"), "/".join(parts[3:5])
            if (kind, name) not in self.private:
                return Answer(404, body=b'{"success": false, "Code": 10010205001, "message": "not found"}')
            data = {"id": name, "private": self.private[kind, name]}
            return _json({"success": True, "data": data, "Data": data})
        return ModelScopeHub.answer(self, path, query)

    def receive(self, method: str, path: str, body: bytes) -> Answer:
        parts = path.strip("/").split("/")
        if parts[0] == "blobs":
            return Answer(507) if self.full else self.take_blob(parts[1], body)
        if path in ("/api/v1/models", "/api/v1/datasets"):
            told = json.loads(body) if path.endswith("models") else _form(body)
            kind, name = parts[2].removesuffix("s"), f"{told.get('Path') or told['Owner']}/{told['Name']}"
            if (kind, name) in self.private:
                return Answer(409, body=b'{"Code": 10010204001, "Message": "exists"}')
            # 1 is private, 5 is public.
            self.make(kind, name, str(told["Visibility"]) == "1", {"README.md": b"# New", ".gitattributes": b"*\n"})
            self.licences[kind, name] = told["License"]
            return _json({"Code": 200, "Data": {"Path": name}})
        kind, name = parts[3].removesuffix("s"), "/".join(parts[4:6])
        if parts[6:] == ["info", "lfs", "objects", "batch"]:
            return _json({"Code": 200, "Data": self.offer_blobs(json.loads(body)["objects"])})
        assert parts[6] == "commit"
        for action in json.loads(body)["actions"]:
            large = action["type"] == "lfs"
            content = self.blobs[action["sha256"]] if large else base64.b64decode(action["content"])
            self.put(kind, name, action["path"], content)
        return _json({"Code": 200, "Data": {}})


def _json(value: object) -> Answer:
    return Answer(body=json.dumps(value).encode(), headers={"Content-Type": "application/json"})


def _form(body: bytes) -> dict[str, str]:
    """The fields of a multipart form."""
    found = re.findall(rb'name="(\w+)"\r\n\r\n(.*?)\r\n--', body, re.DOTALL)
    return {name.decode(): value.decode() for name, value in found}


def _git_sha1(body: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
