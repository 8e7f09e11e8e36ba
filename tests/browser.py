"""Headless Chromium, driven through its debugging pipe: real keys, real clicks, its console."""

import base64
import contextlib
import fcntl
import itertools
import json
import os
import subprocess
from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --hide-scrollbars --disable-component-update "
    "--disable-sync --disable-dev-shm-usage --remote-debugging-pipe"
)


class Page:
    """One open page. `console` has what it said and the errors that it raised."""

    def __init__(self, to_browser, from_browser):
        self.to_browser = to_browser
        self.from_browser = from_browser
        self.numbers = itertools.count(1)
        self.session = None
        self.console = []
        self.loaded = False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        """One command; returns its result. Events that come first are taken in."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.to_browser.write(json.dumps(message).encode() + b"\0")
        self.to_browser.flush()
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def receive(self):
        """The next message, which ends with a zero byte."""
        letters = iter(lambda: self.from_browser.read(1), b"\0")
        text = b""
        for letter in letters:
            assert letter, "the browser has gone"
            text += letter
        message = json.loads(text)
        method = message.get("method")
        if method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(message["params"])
        if method == "Page.loadEventFired":
            self.loaded = True
        return message

    def open(self, url, width=1280, height=900):
        """Load a page in a window of a size, and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.loaded = False
        self.call("Page.navigate", url=url)
        while not self.loaded:
            self.receive()

    def ask(self, expression):
        """The value of an expression of JavaScript."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key, code, modifiers=0):
        """A key, pressed and released; `code` is its virtual key code."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                modifiers=modifiers,
            )

    def mouse(self, selector, share, to=None, down=0.5):
        """Press in an element, at shares of its width and height, and drag to `to` if given."""
        self.ask(f"document.querySelector({selector!r}).scrollIntoView({{block: 'center'}})")
        box = f"document.querySelector({selector!r}).getBoundingClientRect()"
        left, top, width, height = self.ask(f"(b => [b.x, b.y, b.width, b.height])({box})")
        y = top + down * height
        places = [share] if to is None else [share, to]
        where = [left + place * width for place in places]
        common = {"y": y, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=where[0], **common)
        for x in where[1:]:
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, buttons=1, **common)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=where[-1], **common)

    def screenshot(self, path):
        """The whole page as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(shot["data"]))


@contextlib.contextmanager
def browser(folder):
    """A page in a new browser, or a skipped test where there is none."""
    if not CHROMIUM.exists():
        pytest.skip("apt-get install chromium to look at pages in a browser")
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    # Chromium reads commands from file 3 and writes answers to file 4.
    theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (their_in, their_out)]
    words = [str(CHROMIUM), *FLAGS.split(), f"--user-data-dir={folder}"]

    def place():
        os.dup2(theirs[0], 3)
        os.dup2(theirs[1], 4)

    process = subprocess.Popen(
        words,
        preexec_fn=place,
        pass_fds=(3, 4),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for fd in (their_in, their_out, *theirs):
        os.close(fd)
    try:
        with os.fdopen(our_out, "wb") as to_browser, os.fdopen(our_in, "rb") as from_browser:
            yield Page(to_browser, from_browser)
    finally:  # with its pipe closed it ends by itself
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
