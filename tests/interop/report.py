"""Chromium draws the page of a training: charts, tables and pictures, light and dark, wide and narrow, by keyboard, without a network.
With a second argument, a folder, screenshots are written there."""

import pathlib
import subprocess
import sys
import tempfile
import time

from browser import Browser, Page, looks
from checks import check, same

SHOTS = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None

# The least contrast between a text and its background, as WCAG 2 defines it, and where that is.
CONTRAST = """(() => {
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = colour => { canvas.fillStyle = '#000'; canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const clear = colour => /rgba\\(0, 0, 0, 0\\)|transparent/.test(colour);
  const ground = node => { for (; node; node = node.parentElement) { const its = getComputedStyle(node).backgroundColor; if (!clear(its)) return its; } return '#fff'; };
  let least = 21, where = '';
  for (const node of document.querySelectorAll('h1,h2,p,dt,dd,th,td,summary,figcaption,span,b,text,pre,label')) {
    if (![...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()) || !node.getClientRects().length) continue;
    const style = getComputedStyle(node), ink = node instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(rgb(ink)), light(rgb(ground(node)))], ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < least && style.fontSize !== '0px') { least = ratio; where = node.textContent + ' ' + ink + ' on ' + ground(node); }
  }
  return [least, where];
})()"""


def write(kind, folder, *more):
    subprocess.run([sys.argv[1], kind, folder, *more], check=True)
    return folder / "report.html"


def charts(page):
    """The charts' titles, and the number of points in each line."""
    return page.evaluate(
        """[...document.querySelectorAll('figure:has(svg.chart)')].map(figure => [figure.querySelector('figcaption').textContent,
        [...figure.querySelectorAll('.line:not(.faint)')].map(line => (line.getAttribute('d').match(/[ML]/g) ?? []).length)])"""
    )


# The gaps, in pixels, at the ends of the rows of charts, tiles or sections.
HOLES = """[...document.querySelectorAll('.charts,.tiles,.pair')].flatMap(grid => {
  const ends = new Map(), right = grid.getBoundingClientRect().right;
  for (const each of grid.children) { const box = each.getBoundingClientRect(); ends.set(box.top, Math.max(ends.get(box.top) ?? 0, box.right)); }
  return [...ends.values()].map(end => Math.round(right - end)).filter(Boolean);
})"""


def check_looks(browser, kind, file, expected):
    for page, what in looks(browser, kind, file, ((1280, "light"), (1280, "dark"), (400, "light"), (360, "dark")), SHOTS):
        same(dict(charts(page)), expected, f"{what}: the points of each chart")
        least, where = page.evaluate(CONTRAST)
        check(least >= 4.5, f"{what}: contrast {least:.2f} of {where}")
        same(page.evaluate(HOLES), [], f"{what}: rows that end early")
        unnamed = page.evaluate("[...document.querySelectorAll('svg.chart')].filter(svg => !svg.getAttribute('aria-label').includes('last')).length")
        check(kind == "failed" or unnamed == 0, f"{what}: {unnamed} charts have no summary for a screen reader")


def check_keys(browser, file):
    page = Page(browser, file, 1280, 900)
    value = "document.querySelector('.keys b').textContent"
    same(page.evaluate(value), "0.0465", "the last loss")
    page.evaluate("document.querySelector('svg.chart').focus()")
    page.key("Home")
    first = page.evaluate(value)
    check(float(first) > 2, f"the first loss is {first}")
    said = page.evaluate("document.querySelector('figure [role=status]').textContent")
    check(said.startswith(f"step 1: loss {first}"), f"a screen reader is told '{said}'")
    page.key("ArrowRight")
    check(page.evaluate(value) != first, "an arrow key goes to the next point")
    same(page.evaluate("document.querySelectorAll('.cursor').length"), 6, "charts with a cursor")
    page.key("+")
    page.key("+")
    check(page.evaluate("document.querySelector('.line').getAttribute('d').match(/[ML]/g).length") < 400, "plus zooms")
    page.key("0")
    same(page.evaluate("document.querySelectorAll('.cursor').length"), 0, "charts with a cursor after 0")
    page.evaluate("document.querySelector('.keys button').click()")
    same(charts(page)[0][1], [20], "lines of the loss after one is hidden")
    page.evaluate("document.getElementById('all').click()")
    same(charts(page)[0][1], [900, 20], "lines of the loss after all are shown")
    for axis, last in (("epoch", "20"), ("time", "40"), ("step", "900")):
        page.evaluate(f"document.getElementById('x-{axis}').click()")
        labels = page.evaluate("[...document.querySelectorAll('svg.chart')][0].textContent")
        check(last in labels, f"the axis of {axis} has no {last}: {labels}")
    page.evaluate("document.getElementById('scale-log').click()")
    check("0.1" in page.evaluate("document.querySelector('svg.chart').textContent"), "a logarithmic axis")
    page.evaluate("document.querySelector('figure summary').click()")
    page.evaluate("new Promise(done => setTimeout(done, 50))")
    same(page.evaluate("document.querySelectorAll('figure table tbody tr').length - document.querySelectorAll('.bars tr').length"), 200, "rows of numbers")
    page.evaluate("document.getElementById('theme-dark').click()")
    same(page.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(15, 19, 24)", "the ground of the dark theme")
    page.call("Page.reload")
    page.wait_loaded()
    same(page.evaluate("[document.documentElement.dataset.theme, document.getElementById('scale-log').checked]"), ["dark", True], "choices after a reload")
    same(page.evaluate("[...document.images].map(image => image.naturalWidth)"), [28] * 18, "widths of pictures")
    same(page.errors(), [], "errors")
    page.close()


def check_afterwards(browser, file):
    page = Page(browser, file, 1280, 900)
    texts = page.evaluate("[...document.querySelectorAll('.afterwards title')].map(title => title.textContent)")
    same(texts, ["eval_loss after the training: 0.09", "eval_accuracy after the training: 0.97"], "signs of an evaluation after the training")
    tile = page.evaluate("[...document.querySelectorAll('.tiles>div')].find(each => each.textContent.startsWith('eval_loss')).textContent")
    check(tile.endswith("last") and "0.09" not in tile[:-4].split("eval_loss")[1][:5], f"the tile of the last evaluation: {tile}")
    page.close()


def check_equal_runs(browser, file):
    page = Page(browser, file, 1280, 900)
    widths = page.evaluate("[...document.querySelectorAll('figure:nth-of-type(2) .line')].map(line => parseFloat(getComputedStyle(line).strokeWidth))")
    same(sorted(set(widths), reverse=True), widths, "each run's line is narrower than the one below it")
    check(min(widths) == 2 and len(widths) == 4, f"widths of lines: {widths}")
    dots = page.evaluate("[...document.querySelectorAll('figure:nth-of-type(2) .dot')].map(dots => dots.getAttribute('d').match(/M[\\d.]+/g))")
    check(not set(dots[2]) & set(dots[3]), "the markers of two equal runs stand at the same points")
    page.close()


def check_fading(browser, file):
    state = "(box => [[...box.classList].sort().join(' '), getComputedStyle(box).maskImage !== 'none'])(document.querySelector('.wide'))"
    page = Page(browser, file, 400, 900)
    same(page.evaluate(state), ["after wide", True], "a table that goes on at the right")
    page.evaluate("document.querySelector('.wide').scrollLeft = 20")
    page.evaluate("new Promise(done => setTimeout(done, 100))")
    same(page.evaluate(state), ["after before wide", True], "a table that goes on at both sides")
    page.evaluate("document.querySelector('.wide').scrollLeft = 9999")
    page.evaluate("new Promise(done => setTimeout(done, 100))")
    same(page.evaluate(state), ["before wide", True], "a table that goes on at the left")
    page.close()
    page = Page(browser, file, 1280, 900)
    same(page.evaluate(state), ["wide", False], "a table that fits")
    page.close()


def check_amounts(page):
    labels = page.evaluate("[...document.querySelectorAll('figure')].find(each => each.textContent.startsWith('Memory')).querySelector('svg.chart').textContent")
    values = [float(part.split()[-1]) for part in labels.replace("GB", "GB ").split(" GB") if part.strip()[:2] == "0."]
    check(max(values) - min(values) >= 0.05 * max(values), f"an axis from {min(values)} to {max(values)} GB makes small changes look large")


def check_live(browser, folder):
    file = write("running", folder, str(int(time.time())))
    page = Page(browser, file, 1280, 900)
    same(page.evaluate("document.querySelector('.pill').textContent"), "running", "status")
    check("ago" in page.evaluate("document.querySelector('.status').textContent"), "the page says how old it is")
    page.evaluate("scrollTo(0, 500)")
    write("finished", folder)
    page.wait_loaded()  # by itself
    same(page.evaluate("document.querySelector('.pill').textContent"), "finished", "status after the page has loaded itself again")
    same(page.evaluate("scrollY"), 500, "the place in the page is the same")
    time.sleep(4)
    same([event for event in browser.events if event.get("method") == "Page.loadEventFired" and event.get("sessionId") == page.session], [], "a page of a training that has ended doesn't load again")
    page.close()
    old = Page(browser, write("running", folder, str(int(time.time()) - 4000)), 1280, 900)
    check("may have been killed" in old.evaluate("document.querySelector('.status').textContent"), "a page without news says so")
    old.close()


def check_injection(browser, file):
    page = Page(browser, file, 1280, 900)
    check("hacked" != page.evaluate("document.title"), "a text of the run became a script")
    same(page.evaluate("document.querySelectorAll('script').length"), 2, "scripts")
    check("</script><script>" in page.evaluate("document.querySelector('.reason').textContent"), "the error's text is whole")
    same(page.evaluate("document.querySelectorAll('.broken').length"), 4, "numbers that aren't finite are marked")
    page.close()


FINISHED = {"Loss": [900, 20], "eval_accuracy": [20], "Learning rate": [900], "Gradient norm": [900], "examples per second": [900], "Memory": [900, 900]}
with tempfile.TemporaryDirectory() as name, Browser() as browser:
    folder = pathlib.Path(name)
    finished = write("finished", folder / "finished")
    check_looks(browser, "finished", finished, FINISHED | {"Loss by learning rate": [100, 100]})
    check_keys(browser, finished)
    check_afterwards(browser, finished)
    failed = write("failed", folder / "failed")
    check_looks(browser, "failed", failed, FINISHED | {"Loss": [901, 20], "</script><b>name": [2], "huge": [0]})
    check_injection(browser, failed)
    comparison = write("comparison", folder / "comparison")
    check_looks(browser, "comparison", comparison, {title: counts * 4 for title, counts in FINISHED.items()} | {"Loss": [900, 20] * 4})
    check_equal_runs(browser, comparison)
    check_fading(browser, comparison)
    long = write("long", folder / "long")
    check(long.stat().st_size < 300_000, f"a page of a million steps has {long.stat().st_size} bytes")
    page = Page(browser, long, 1280, 900)
    (points,) = dict(charts(page))["Loss"]
    check(900 < points <= 2000, f"a million steps are {points} points")
    check_amounts(page)
    page.close()
    check_live(browser, folder / "live")
