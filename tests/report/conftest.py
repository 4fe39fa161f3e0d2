import shutil

import pytest


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium")
    if path is None:
        pytest.fail("there is no chromium here and its package could not be installed; install it and run this again")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def look(browser):
    """look(page, width): the page in a browser, after checks that every page must pass."""
    contexts = []

    def open_page(page, width):
        context = browser.new_context(viewport={"width": width, "height": 800})
        contexts.append(context)
        tab = context.new_page()
        asked, complaints = [], []
        tab.on("request", lambda request: asked.append(request.url))
        tab.on("console", lambda message: complaints.append(message.text))
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.goto(page.as_uri())
        assert not complaints
        assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
        for picture in tab.locator("img").all():  # each is decoded, and has a text for those who cannot see it
            assert picture.evaluate("image => image.naturalWidth") > 100
            assert picture.get_attribute("alt")
        # The page itself never scrolls sideways; a wide table scrolls in its own box.
        assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        return tab

    yield open_page
    for context in contexts:
        context.close()
