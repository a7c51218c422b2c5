"""The report in a browser: no errors, no request, tables that sort and download, and nothing wider than a phone."""

import csv
import io
import shutil
from pathlib import Path

import pytest
import test_answers_report
from test_report import write_page

from fake_results import make_instruction_results, make_results

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium on this machine (Debian: apt-get install chromium)")


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """A report with every section, and texts that a careless page would trip over."""
    texts = [f'row {k} "quoted", <b>bold</b> {"long" * (30 if k == 3 else 1)}' for k in range(200)]
    folder = tmp_path_factory.mktemp("browser") / "a report"
    results = make_results(folder, rows=200, texts=texts, seeds=(1, 2), failed=("majority",))
    write_page(results)
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # The sandbox needs rights that root in a container has not; the page is our own.
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, report):
    """Open the report; at the end nothing may have gone wrong in it, and nothing may have been asked of a network."""
    contexts, errors, requests = [], [], []

    def open_(**options):
        context = browser.new_context(accept_downloads=True, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("request", lambda request: requests.append(request.url))
        page.goto(report.as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert errors == []
    assert {url.partition(":")[0] for url in requests} <= {"file", "data"}
    assert [url for url in requests if url.startswith("file:")] == [report.as_uri()] * len(contexts)


def cells(page, table: str, column: int) -> list[str]:
    return page.eval_on_selector_all(
        f"#{table} tbody tr", f"rows => rows.map(row => row.cells[{column}].innerText.trim())"
    )


def values(page, table: str, column: int) -> list[float]:
    script = f"rows => rows.map(row => parseFloat(row.cells[{column}].dataset.value)).filter(value => !isNaN(value))"
    return page.eval_on_selector_all(f"#{table} tbody tr", script)


def test_a_click_on_a_heading_sorts_its_table(open_page):
    page = open_page(viewport=LAPTOP)
    assert page.locator("table.sortable").count() >= 9
    accuracy = values(page, "table-metrics", 1)
    assert accuracy != sorted(accuracy, reverse=True), "or the test shows nothing"
    heading = page.locator("#table-metrics thead th").nth(1)
    heading.locator("button").click()
    assert values(page, "table-metrics", 1) == sorted(accuracy, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    heading.locator("button").click()
    assert values(page, "table-metrics", 1) == sorted(accuracy)
    names = cells(page, "table-metrics", 0)
    page.locator("#table-metrics thead button").nth(0).click()
    assert cells(page, "table-metrics", 0) == sorted(names, key=str.casefold)
    assert heading.get_attribute("aria-sort") is None
    # What has no value comes last, whichever the direction.
    energy = page.locator("#table-runs thead button").nth(4)
    for _ in range(2):
        energy.click()
        assert cells(page, "table-runs", 4)[-1] == "\u2013"


def downloaded(page, button):
    """What a click on a button downloads. On a busy machine, Chromium now and then drops one of thirty in a row."""
    from playwright.sync_api import TimeoutError as NothingCame

    for _ in range(3):
        try:
            with page.expect_download(timeout=10_000) as download:
                button.click()
            return download.value
        except NothingCame:
            continue
    raise AssertionError(f"nothing is downloaded by {button}")


def test_every_table_is_downloaded_as_it_is(open_page, report):
    page = open_page(viewport=LAPTOP)
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true })")
    buttons = page.locator("a[download$='.csv'], button.button:text('Download CSV')")
    assert page.locator("table").count() > 9 and buttons.count() >= page.locator("table").count()
    found = {}
    for button in buttons.all():
        download = downloaded(page, button)
        found[download.suggested_filename] = Path(download.path()).read_bytes()
    for name in ("metrics", "comparison", "resources"):
        assert found[f"{name}.csv"] == (report.parent / "tables" / f"{name}.csv").read_bytes()
    assert found["accuracy.csv"] == (report.parent / "figures" / "accuracy.csv").read_bytes()
    rows = list(csv.reader(io.StringIO(found["table-data.csv"].decode())))
    assert rows[0] == ["Label", "train", "validation", "test"] and len(rows) == 1 + 3 + 1
    assert [float(row[1]) for row in rows[1:4]] == values(page, "table-data", 1)
    failed = list(csv.reader(io.StringIO(found["table-failed.csv"].decode())))
    assert failed[1] == [cells(page, "table-failed", column)[0] for column in range(3)]


def test_the_bibliography_is_downloaded_and_the_method_section_copied(open_page, report):
    page = open_page(viewport=LAPTOP, permissions=["clipboard-read"])
    with page.expect_download() as download:
        page.locator("a[download='references.bib']").click()
    assert Path(download.value.path()).read_bytes() == (report.parent / "references.bib").read_bytes()
    page.locator("button[data-copies='method-text']").click()
    copied = page.evaluate("navigator.clipboard.readText()").replace("\u00a0", " ")
    assert copied.strip().startswith("The data are 4,200 tweets") and "[@hu2022lora]" in copied


def test_links_to_files_lead_to_them(open_page, report):
    page = open_page(viewport=LAPTOP)

    def links(table):
        return page.eval_on_selector_all(f"#{table} tbody a", "all => all.map(link => link.getAttribute('href'))")

    # The numbers of one arm are from its own file; those that seeds were pooled for, from the arms that follow.
    of_one_seed, of_seeds = links("table-metrics"), links("table-seeds")
    assert {link.split("/")[-3] for link in of_one_seed} == {"tfidf", "zero-shot"}
    assert len(of_seeds) == page.locator("#table-seeds tbody tr").count() == 4
    assert all((report.parent / link).is_file() and link.endswith("metrics.json") for link in of_one_seed + of_seeds)


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_screen_and_follows_the_scheme(open_page, viewport, scheme):
    page = open_page(viewport=viewport, color_scheme=scheme)
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] <= width[1]
    channels = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
    assert (sum(channels) > 600) == (scheme == "light")


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_the_report_of_instructions_fits_too_and_its_tables_sort(browser, tmp_path, viewport):
    text = f'"quoted", <b>bold</b> {"long" * 40}'
    results = make_instruction_results(tmp_path, seeds=(1, 2), failed=("qlora",), text=text)
    test_answers_report.write_page(results)
    context, errors, requests = browser.new_context(viewport=viewport), [], []
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tmp_path / "report.html").as_uri())
    width = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width[0] <= width[1]
    page.locator("#table-metrics thead button").nth(2).click()
    accuracy = values(page, "table-metrics", 2)
    assert len(accuracy) == 2 and accuracy == sorted(accuracy, reverse=True)
    context.close()
    assert errors == [] and {url.partition(":")[0] for url in requests} <= {"file", "data"}
