"""The report of an experiment with labels.

`build_report` gathers it from the files of an experiment and fills the template. Nothing is computed here that the
tables do not have; the sentences are made from them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprolora.files import read_json
from reprolora.report.answer import answer, notices
from reprolora.report.audit_section import audit_section
from reprolora.report.errors_section import errors_section
from reprolora.report.evidence import download, linker
from reprolora.report.examples import examples
from reprolora.report.method_section import method_section
from reprolora.report.results import Results
from reprolora.report.shared import CAPTIONS, render, shared_sections
from reprolora.report.sources import LabelSources
from reprolora.report.tables import data_section, per_class_rows, settings_rows


def build_report(settings: Mapping[str, Any], sources: LabelSources, template: Path, output: Path) -> str:
    """The page. Links to files are relative to the folder of `output`."""
    results = Results.read(settings, sources, ("accuracy", "macro_f1"))
    link = linker(output)
    sections = {
        "answer": answer(results),
        "notices": notices(results),
        "labels": settings["dataset"]["labels"],
        "per_class": per_class_rows(results),
        "examples": examples(results),
        "data": data_section(settings, results),
        "settings_rows": settings_rows(settings, "evaluation"),
        "method_section": method_section(settings, results.split, results.trainings),
        "audit": audit_section(read_json(sources.audit), sources.audit_tables)
        | {"downloads": {file.stem: download(file, link) for file in sources.audit_tables}},
        "errors": errors_section(sources.error_tables)
        | {"downloads": {file.stem: download(file, link) for file in sources.error_tables}},
    }
    return render(template, shared_sections(results, sources, CAPTIONS, link) | sections)
