"""Reports in a real browser, from disk: silent, alone, complete, and usable with a mouse, a keyboard and a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, NO_CHROMIUM, Browser
from markup import COMPARISON_SECTIONS
from nsys_exports import STEPPED
from stored_duels import DuelSpec, comparison_of
from test_hostile_names import HOSTILE

from harness.analysis.analyze import analyze
from harness.analysis.range_part import RangePart
from harness.report import render_analysis, render_comparison, write_report
from harness.report.page import Page
from harness.report.palette import COLOURS
from harness.report.sections import attribution, headline
from harness.trace.reader import read_trace

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)

OVERFLOW = """[...document.querySelectorAll("body *")].filter(e => {
  if (e.closest(".scroll, .icicle, svg, #tip, .skip, .strip") || getComputedStyle(e).display === "none") return false;
  const box = e.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map(e => e.tagName + "." + e.className).slice(0, 5)"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    page = render_comparison(*comparison_of(folder, DuelSpec(pairs=4, steps=12)))
    write_report(folder / "report.html", page)
    return folder / "report.html"


@pytest.mark.parametrize("width", [1280, 380])
def test_a_trace_with_gpu_work_fits(browser: Browser, tmp_path: Path, width: int) -> None:
    write_report(tmp_path / "trace.html", render_analysis(analyze(read_trace(STEPPED[-1]))))
    browser.open(tmp_path / "trace.html", width=width)
    assert browser.complaints() == []
    assert browser.requests() == [(tmp_path / "trace.html").resolve().as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(OVERFLOW) == []
    assert browser.evaluate("document.querySelectorAll('#step-gpu tbody tr').length") == 4
    assert browser.evaluate("document.querySelector('#copies').offsetHeight") > 40


def background(browser: Browser) -> str:
    red, green, blue = browser.evaluate("getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g)")
    return f"#{int(red):02x}{int(green):02x}{int(blue):02x}"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 380])
def test_the_page_is_silent_alone_and_fits(browser: Browser, report: Path, width: int, dark: bool) -> None:
    browser.open(report, width=width, dark=dark)
    assert browser.complaints() == []
    assert browser.requests() == [report.resolve().as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.evaluate(OVERFLOW) == []
    sections = browser.evaluate("[...document.querySelectorAll('main section')].map(s => s.id)")
    assert sections == COMPARISON_SECTIONS
    assert browser.evaluate("[...document.querySelectorAll('main section')].every(s => s.offsetHeight > 40)")
    assert background(browser) == COLOURS["page"][dark]
    drawn = "[...document.querySelectorAll('svg.plot')].filter(s => s.getBoundingClientRect().width > 0)"
    assert browser.evaluate(f"{drawn}.length") == 2 + 4  # one width each of two plots, and a panel a launch pair
    smallest = f"""Math.min(...{drawn}.map(s =>
        s.getBoundingClientRect().width / s.viewBox.baseVal.width * 12))"""
    assert browser.evaluate(smallest) >= 9  # pixels of a 12 pixel label


def test_the_theme_switch_overrides_the_system(browser: Browser, report: Path) -> None:
    browser.open(report)
    line = "getComputedStyle(document.querySelector('svg.plot [style*=\"stroke: var(--head)\"]')).stroke"
    before = browser.evaluate(line)
    for theme, word in ((1, "Light"), (0, "Dark")):
        browser.evaluate("document.getElementById('theme').click()")
        assert background(browser) == COLOURS["page"][theme]
        assert browser.evaluate("document.getElementById('theme').textContent") == word
        assert (browser.evaluate(line) == before) == (theme == 0)


def test_a_range_zooms_in_both_trees_and_back(browser: Browser, report: Path) -> None:
    browser.open(report)
    path = "step/train_mode_enter"
    own = f"[...document.querySelectorAll('.box')].filter(b => b.dataset.path === '{path}')"
    widths = f"{own}.map(b => b.getBoundingClientRect().width / b.parentElement.getBoundingClientRect().width)"
    before, axis = browser.evaluate(widths), browser.evaluate("document.querySelector('.icicle-axis').textContent")
    assert len(before) == 2
    browser.evaluate(f"{own}[1].click()")
    after = browser.evaluate(widths)
    assert max(after) == pytest.approx(1, abs=0.01)
    assert after[0] / after[1] == pytest.approx(before[0] / before[1], rel=0.02)  # still on one axis
    assert browser.evaluate("document.querySelector('.icicle-axis').textContent") != axis
    browser.evaluate("document.querySelector('.zoom-out').click()")
    assert browser.evaluate(widths) == pytest.approx(before, abs=1e-3)
    assert browser.evaluate("document.querySelector('.icicle-axis').innerText.split(/\\s+/).join()") == ",".join(
        axis.split()
    )
    assert browser.complaints() == []


def test_trees_work_from_the_keyboard(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.evaluate("document.querySelector('.box').focus()")
    focused = "document.activeElement.dataset.path"
    for key, expected in (
        ("ArrowDown", "step/train_mode_enter"),
        ("ArrowRight", "step/forward_backward"),
        ("ArrowLeft", "step/train_mode_enter"),
        ("ArrowUp", "step"),
        ("ArrowUp", "step"),
    ):
        browser.press(key)
        assert browser.evaluate(focused) == expected
    browser.press("ArrowDown")
    assert browser.evaluate("document.getElementById('tip').hidden") is False
    assert "own time" in browser.evaluate("document.getElementById('tip').textContent")
    browser.press("Enter")
    assert browser.evaluate("document.querySelector('.zoom-out').hidden") is False
    browser.press("Escape")
    assert browser.evaluate("document.querySelector('.zoom-out').hidden") is True
    tabs = "document.querySelectorAll('.icicle [tabindex=\"0\"]').length"
    assert browser.evaluate(tabs) == browser.evaluate("document.querySelectorAll('.icicle').length")


def test_a_tooltip_follows_the_mouse_and_stays_in_the_window(browser: Browser, report: Path) -> None:
    browser.open(report)
    x, y = browser.evaluate(
        """(() => { const box = [...document.querySelectorAll('.icicle')].at(-1).querySelector('.box');
        box.scrollIntoView({block: 'end', behavior: 'instant'}); const place = box.getBoundingClientRect();
        return [place.right - 4, place.top + 5]; })()"""
    )
    browser.hover(x, y)
    place = (
        "(() => { const t = document.getElementById('tip').getBoundingClientRect(); return [t.right, t.bottom]; })()"
    )
    right, bottom = browser.evaluate(place)
    assert 0 < right <= 1280
    assert 0 < bottom <= 900
    assert browser.evaluate("document.getElementById('tip').textContent").startswith("step")
    browser.hover(5, 5)
    assert browser.evaluate("document.getElementById('tip').hidden") is True


def test_all_is_there_without_script_and_in_print(browser: Browser, report: Path) -> None:
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(report)
        text = browser.send("Runtime.evaluate", expression="1")  # the protocol still answers
        assert text["result"]["value"] == 1
        assert browser.evaluate("document.querySelectorAll('.box').length") > 10
        assert browser.evaluate("document.getElementById('theme').hidden")
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)
    browser.open(report, dark=True)
    browser.send("Emulation.setEmulatedMedia", media="print")
    assert background(browser) == COLOURS["page"][0]
    assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert len(browser.send("Page.printToPDF", printBackground=True)["data"]) > 10_000
    browser.send("Emulation.setEmulatedMedia", media="")


def test_hostile_names_run_nothing_and_keep_the_page_in_shape(browser: Browser, tmp_path: Path) -> None:
    parts = [RangePart(path=name, base_ns=1e6 * at, head_ns=2e6) for at, name in enumerate(HOSTILE)]
    lead = headline.section(crumb=HOSTILE[0], sentence=HOSTILE[-1], lines=HOSTILE, tiles=[])
    page = Page(kind="Test", heading=HOSTILE[1], lead=lead, sections=(attribution.section(parts, ""),)).render()
    write_report(tmp_path / "hostile.html", page)
    for width in (1280, 380):
        browser.open(tmp_path / "hostile.html", width=width)
        assert browser.complaints() == []
        assert browser.requests() == [(tmp_path / "hostile.html").resolve().as_uri()]
        assert browser.evaluate("document.documentElement.scrollWidth") == width
        assert browser.evaluate("document.scripts.length") == 1
        assert browser.evaluate("document.querySelectorAll('main script, main style, main b').length") == 0
