"""Chromium without a window, driven through a pipe by its DevTools protocol."""

import base64
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from checks import check, same

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    "--headless",
    "--hide-scrollbars",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Browser:
    """Starts Chromium with a temporary profile. Without Chromium, the test is skipped."""

    def __init__(self):
        program = next(filter(None, map(shutil.which, PROGRAMS)), None)
        if program is None:
            print("skipped: there is no Chromium")
            sys.exit(77)
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        reads, self.to = os.pipe()
        self.answers, writes = os.pipe()

        def connect():
            # The pipe's ends are 3 and 4 in the browser, whatever they are here.
            ends = os.dup(reads), os.dup(writes)
            os.dup2(ends[0], 3)
            os.dup2(ends[1], 4)

        self.process = subprocess.Popen(
            [program, *QUIET, f"--user-data-dir={self.profile.name}", "about:blank"],
            preexec_fn=connect,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(reads)
        os.close(writes)
        self.buffer, self.number, self.events = b"", 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except EOFError:
            pass
        self.process.wait(timeout=30)
        os.close(self.to)
        os.close(self.answers)
        self.profile.cleanup()

    def receive(self):
        while b"\0" not in self.buffer:
            read = os.read(self.answers, 1 << 20)
            if not read:
                raise EOFError("the browser has ended")
            self.buffer += read
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method, session):
        while True:
            for i, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    return self.events.pop(i)
            self.events.append(self.receive())


class Page:
    """A page of a file, in a window of this size, for a reader who prefers "light" or "dark"."""

    def __init__(self, browser, file, width, height, scheme="light"):
        self.browser, self.faults = browser, []
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=pathlib.Path(file).resolve().as_uri())
        self.wait_loaded()

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def wait_loaded(self):
        self.browser.wait_for("Page.loadEventFired", self.session)
        # Waits for two frames, so that size observers have run.
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" and len(key) == 1 else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **text)

    def errors(self):
        """Texts on the console, exceptions, and addresses that the page requested besides its own."""
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif method == "Runtime.consoleAPICalled":
                found.append(str(params["args"]))
            elif method == "Log.entryAdded":
                found.append(params["entry"]["text"])
            elif method == "Network.requestWillBeSent":
                address = params["request"]["url"]
                if not address.startswith(("data:", "file:")):
                    found.append(address)
        return found

    def screenshot(self, file, whole=True):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}} if whole else {}
        picture = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **clip)["data"]
        pathlib.Path(file).write_bytes(base64.b64decode(picture))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)


def looks(browser, kind, file, windows, shots=None):
    """Yields the page in each window, a width and "light" or "dark", with its description. Checks what every page must satisfy, and writes
    a screenshot into the folder `shots`."""
    for width, scheme in windows:
        page, what = Page(browser, file, width, 900, scheme), f"{kind}, {width} px, {scheme}"
        yield page, what
        check(page.evaluate("document.documentElement.scrollWidth") <= width, f"{what}: the page is wider than the window")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
        same(dark, scheme == "dark", f"{what}: the ground is dark")
        same(page.errors(), [], f"{what}: errors")
        if shots:
            shots.mkdir(parents=True, exist_ok=True)
            page.screenshot(shots / f"{kind}-{width}-{scheme}.png")
        page.close()
