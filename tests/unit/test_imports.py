"""The import finder: it sees every module of the library that a script loads, and no others."""

import subprocess
import sys
from pathlib import Path

import pytest

from reprolora.imports import import_closure, imported_files

SCRIPTS = Path(__file__).parents[2] / "scripts"


@pytest.fixture
def scripts(tmp_path):
    """A folder of scripts with a library in which every kind of import stands."""
    files = {
        "direct.py": "import reprolora.a\n",
        "inside.py": "def main():\n    from reprolora import b\n",
        "function.py": "from reprolora.c.deep import function\n",
        "nothing.py": "import json\nfrom pathlib import Path\n",
        "chain.py": "from reprolora.d import x\n",
        "circle.py": "from reprolora import e\n",
        "reprolora/__init__.py": "",
        "reprolora/a.py": "",
        "reprolora/b.py": "",
        "reprolora/c/__init__.py": "from reprolora import a\n",
        "reprolora/c/deep.py": "from . import side\nfrom ..b import y\n\ndef function(): ...\n",
        "reprolora/c/side.py": "",
        "reprolora/d.py": "import reprolora.a as other\nx = 1\n",
        "reprolora/e.py": "from reprolora import f\n",
        "reprolora/f.py": "from reprolora import e\n",
        "reprolora/unused.py": "",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("direct", ["__init__", "a"]),
        ("inside", ["__init__", "b"]),
        ("function", ["__init__", "a", "b", "c/__init__", "c/deep", "c/side"]),
        ("nothing", []),
        ("chain", ["__init__", "a", "d"]),
        ("circle", ["__init__", "e", "f"]),
    ],
)
def test_every_kind_of_import_is_followed(scripts, script, expected):
    found = import_closure(scripts / f"{script}.py")
    assert found == sorted(scripts / "reprolora" / f"{name}.py" for name in expected)


def test_a_changed_file_is_read_again(scripts):
    """Within one process too, as when Snakemake is run from Python."""
    assert len(import_closure(scripts / "chain.py")) == 3
    imported_files.cache_clear()
    (scripts / "reprolora/d.py").write_text("x = 1\n")
    assert len(import_closure(scripts / "chain.py")) == 2


@pytest.mark.parametrize("name", ["prepare_dataset", "split_dataset", "fetch_dataset", "document_configuration"])
def test_what_a_script_really_loads_is_found(name):
    """Run to its first line of help, so that all imports at the top have happened."""
    program = (
        "import sys, runpy; sys.argv[1:] = ['--help']\n"
        "try: runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit: pass\n"
        "print('\\n'.join(m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'reprolora'))"
    )
    script = SCRIPTS / f"{name}.py"
    program = f"import sys; sys.argv = [{str(script)!r}]; sys.path.insert(0, {str(SCRIPTS)!r})\n" + program
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {Path(line) for line in done.stdout.splitlines() if line.startswith(str(SCRIPTS))}
    assert len(loaded) > 2
    assert loaded <= set(import_closure(script))
