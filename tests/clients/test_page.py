"""Web page at / in headless Chromium."""

import os
import shutil

import pytest

from conftest import ANSWER, QUESTION, Server
from test_http import LONG, eventually, metric, post

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
# Folder for screenshots of docs/images.
PICTURES = os.environ.get("ATTEND_PICTURES")

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no chromium")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server):
    page = browser.new_page(viewport={"width": 1200, "height": 800})
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    # The browser logs rejected requests to the console; they are not faults of the page.
    page.on("console", lambda message: faults.append(message.text)
            if message.type == "error" and "400 (Bad Request)" not in message.text else None)
    page.goto(server.url)
    yield page
    page.close()
    assert faults == []


def ask(page, text):
    page.fill("#text", text)
    page.keyboard.press("Enter")


def wait_for_end(page):
    page.locator("#send:not([disabled])").wait_for()


def test_panel_opens_on_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 780})
    assert not page.locator("#temperature").is_visible()
    page.get_by_role("button", name="Parameters and charts").click()
    page.fill("#temperature", "0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_role("button", name="Parameters and charts").click()
    assert not page.locator("#temperature").is_visible()
    ask(page, QUESTION)
    wait_for_end(page)
    assert page.locator(".assistant").inner_text() == ANSWER.strip()


def test_question_is_answered(page):
    ask(page, QUESTION)
    wait_for_end(page)
    assert page.locator(".user").inner_text() == QUESTION
    assert page.locator(".assistant").inner_text() == ANSWER.strip()
    assert page.locator("#talk .note").last.inner_text().startswith("5 tokens")
    ask(page, "recall: sun=42, river=17, fox=80; river=")
    wait_for_end(page)
    assert page.locator(".assistant").all_inner_texts() == [ANSWER.strip(), "17"]
    page.get_by_role("button", name="Again").last.click()
    wait_for_end(page)
    assert page.locator(".assistant").all_inner_texts() == [ANSWER.strip(), "17"]
    if PICTURES:
        page.wait_for_timeout(3000)
        page.screenshot(path=f"{PICTURES}/page.png")
    page.get_by_role("button", name="New conversation").click()
    assert page.locator(".message").count() == 0


def test_answer_is_streamed_and_can_be_stopped(page, server):
    # By default the model would end the answer after a few tokens.
    page.route("**/v1/chat/completions", lambda route: route.continue_(
        post_data=route.request.post_data.replace("{", '{"ignore_eos": true, ', 1)))
    before = metric(server, "num_aborted_requests_total")
    # Recorded in the page, since the answer may end before the browser's reply reaches the test.
    page.evaluate("""() => {
        window.lengths = [];
        new MutationObserver(() => {
            const answer = document.querySelector(".assistant"), length = answer ? answer.innerText.length : 0;
            if (length > (lengths.at(-1) ?? 0)) lengths.push(length);
            if (lengths.length === 3) document.querySelector("#stop").click();
        }).observe(document.querySelector("#talk"), {childList: true, subtree: true, characterData: true}); }""")
    # Other requests keep the server busy; otherwise the answer could finish before the page has been read
    # three times.
    with server.connect() as others:
        others.sendall(post("/v1/completions", LONG | {"n": 30}))
        others.recv(100)
        ask(page, QUESTION)
        wait_for_end(page)
        lengths = page.evaluate("lengths")
        assert len(lengths) >= 3
        assert "stopped" in page.locator("#talk .note").last.inner_text()
        stopped = page.locator(".assistant").inner_text()
        assert len(stopped) >= lengths[-1]
        eventually(lambda: metric(server, "num_aborted_requests_total") == before + 1)
    eventually(lambda: metric(server, "num_running_reqs") == 0)
    assert page.locator(".assistant").inner_text() == stopped


def test_plots_follow_the_load(page, server):
    canvas = "canvas => canvas.toDataURL()"
    still = page.locator("#rate").evaluate(canvas)
    ask(page, QUESTION)
    wait_for_end(page)
    eventually(lambda: page.locator("#rate").evaluate(canvas) != still)
    assert "running" in page.locator("#now_requests").inner_text()
    assert "tokens" in page.locator("#now_pool").inner_text()


def test_error_is_shown_and_the_question_is_restored(page):
    page.fill("#top_p", "7")
    ask(page, QUESTION)
    wait_for_end(page)
    assert "top_p 7: expected 0 to 1" in page.locator(".error").inner_text()
    assert page.input_value("#text") == QUESTION


def test_code_is_rendered_as_code(page):
    rendered = page.evaluate("""() => { const box = document.createElement("div");
        render(box, "Use `x`:\\n```c\\nint x;\\n```\\n<b>end"); return box.innerHTML; }""")
    assert rendered == "<p>Use <code>x</code>:</p><pre><code>int x;</code></pre><p>&lt;b&gt;end</p>"


def test_api_key_is_sent(browser):
    server = Server("--api-key", "secret")
    page = browser.new_page()
    try:
        page.goto(server.url)
        page.fill("#key", "secret")
        ask(page, QUESTION)
        wait_for_end(page)
        assert page.locator(".assistant").inner_text() == ANSWER.strip()
    finally:
        page.close()
        server.stop()
