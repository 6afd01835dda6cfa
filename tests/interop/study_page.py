"""Chromium draws the page of a study: charts, tables and the choice of a trial, light and dark, wide and narrow, without a network.
With a second argument, a folder, screenshots are written there."""

import pathlib
import subprocess
import sys
import tempfile

from browser import Browser, Page, looks
from checks import check, same

SHOTS = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None


def write(kind, folder):
    file = folder / f"{kind}.html"
    subprocess.run([sys.argv[1], kind, file], check=True)
    return file


def count(page, selector):
    return page.evaluate(f"document.querySelectorAll({selector!r}).length")


def text(page, selector):
    return page.evaluate(f"document.querySelector({selector!r}).textContent")


def check_looks(browser, kind, file, sections):
    for page, what in looks(browser, kind, file, ((1280, "light"), (1280, "dark"), (400, "light")), SHOTS):
        same(page.evaluate("[...document.querySelectorAll('section')].map(each => each.getAttribute('aria-labelledby'))"), sections, f"{what}: sections")


def check_small(browser, file):
    page = Page(browser, file, 1280, 900)
    same(text(page, ".counts"), "5trials2complete1pruned1failed1running", "counts")
    same(text(page, ".big"), "trial2value0.25", "the best trial")
    same(text(page, ".summary dl:not(.big)"), "lr0.001optimsgd", "its hyperparameters")
    same(text(page, ".summary .note"), "From 2024-02-29 12:30 UTC to 2024-02-29 13:32 UTC: 1 h 02 min.", "the time")
    same(page.evaluate("[...document.querySelectorAll('tbody tr[data-t]')].map(row => row.dataset.t)"), ["2", "0", "1", "4", "3"], "the order of the table")
    same(page.evaluate("document.querySelector('.all a').getAttribute('href')"), 'a"b/report.html', "the address of a trial's page")
    page.close()


def check_choice(browser, file):
    page = Page(browser, file, 1280, 900)
    page.evaluate("document.querySelector('.history svg').focus()")
    page.key("Home")
    chosen = text(page, "#chosen")
    best = page.evaluate("document.querySelector('.all tbody tr').dataset.t")
    check(chosen.startswith(f"trial ★ {best}"), f"Home chooses the best trial: {chosen}")
    # A marker, a line in each other chart, and a row.
    check(count(page, ".on") >= 4, "the trial is chosen in all charts and in the table")
    page.key("ArrowRight")
    check(text(page, "#chosen") != chosen, "an arrow key goes to the next trial")
    page.key("Escape")
    same([text(page, "#chosen"), count(page, ".on")], ["", 0], "nothing is chosen after Escape")
    page.evaluate("document.querySelectorAll('.all tbody tr')[2].click()")
    same(count(page, ".all tr.on"), 1, "a click chooses a row")
    column = "[...document.querySelectorAll('.all tbody tr')].map(row => row.cells[3].dataset.v).filter(Boolean).map(Number)"
    page.evaluate("document.querySelectorAll('.all button')[3].click()")
    up = page.evaluate(column)
    same(up, sorted(up), "a click on a title sorts the table")
    page.evaluate("document.querySelectorAll('.all button')[3].click()")
    same(page.evaluate(column), up[::-1], "a second one turns the order around")
    same(page.errors(), [], "errors")
    page.close()


def check_large(browser, file):
    page = Page(browser, file, 1280, 900)
    check(text(page, ".lead").startswith("1000 of 10000 trials are drawn and listed: the best 500"), "the page says what it leaves out")
    same(count(page, ".all tbody tr"), 1000, "rows")
    same(count(page, ".history .m[data-t]"), 1000, "markers")
    check("of 10000 trials with reports are drawn" in text(page, ".curves"), "the curves say what they leave out")
    page.close()


def check_injection(browser, file):
    page = Page(browser, file, 1280, 900)
    check("hacked" != page.evaluate("document.title"), "a text of the study became a script")
    same(count(page, "script"), 2, "scripts")
    same(count(page, "img"), 0, "pictures")
    check("</script><script>" in text(page, "h1"), "the name is whole")
    page.close()


ALL = ["summary", "history", "importance", "parallel", "curves", "trials"]
with tempfile.TemporaryDirectory() as name, Browser() as browser:
    folder = pathlib.Path(name)
    small, many = write("small", folder), write("many", folder)
    check_looks(browser, "small", small, ALL)
    check_looks(browser, "many", many, ALL)
    check_looks(browser, "pareto", write("pareto", folder), ["summary", "front", "importance", "parallel", "trials"])
    check_looks(browser, "empty", write("empty", folder), ["summary", "trials"])
    check_small(browser, small)
    check_choice(browser, many)
    check_large(browser, write("large", folder))
    odd = write("odd", folder)
    check_looks(browser, "odd", odd, ALL)
    check_injection(browser, odd)
