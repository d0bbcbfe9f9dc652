"""The page in a real browser. Screenshots are left in tests/output/report."""

import base64
import json
import shutil
import time
from pathlib import Path

import pytest

selenium = pytest.importorskip("selenium")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not CHROMIUM or not DRIVER:
    pytest.skip("needs Debian's chromium and chromium-driver", allow_module_level=True)

from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

OUTPUT = Path(__file__).parents[1] / "output" / "report"
PATIENCE = 1800  # seconds, so that a page that never gets there ends some day; it takes a few on an idle core


class Page:
    """An open report."""

    def __init__(self, driver, address):
        self.driver = driver
        driver.get(address)
        self.wait(lambda: self.script("return document.documentElement.dataset.ready"))

    def script(self, text, *arguments):
        return self.driver.execute_script(text, *arguments)

    def wait(self, condition):
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < end, "the page did not get there in time"
            time.sleep(0.05)
        return found

    def chart(self, name, section="data-0"):
        """A chart by its place in the template."""
        chart = self.driver.find_element(By.CSS_SELECTOR, f'#{section} [data-slot="{name}"]')
        self.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", chart)
        return chart

    def traces(self, chart):
        keep = "({name: t.name, visible: t.visible, x: t.x, y: t.y, dash: t.line?.dash, symbol: t.marker?.symbol})"
        return self.script(f"return arguments[0].data.map((t) => {keep})", chart)

    def look(self, *, width=1200, dark=False):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def picture(self, name):
        width, height = self.script(
            "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        )
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, 15_000), "scale": 1}
        shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        OUTPUT.mkdir(parents=True, exist_ok=True)
        (OUTPUT / name).write_bytes(base64.b64decode(shot["data"]))


@pytest.fixture(scope="module")
def driver():
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1200,900"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(PATIENCE)
    driver.set_script_timeout(PATIENCE)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def opened(driver, page):
    return Page(driver, page.as_uri())


@pytest.fixture
def report(opened):
    opened.look()
    return opened


def test_loads_in_silence_and_asks_nobody(report):
    logged = report.driver.get_log("performance")
    messages = [json.loads(entry["message"])["message"] for entry in logged]
    addresses = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert sum(address.startswith("file:") for address in addresses) == 1  # the page itself
    assert not [address[:80] for address in addresses if not address.startswith(("file:", "data:"))]
    assert not [entry for entry in report.driver.get_log("browser") if entry["level"] != "INFO"]
    report.picture("wide.png")


def test_every_chart_is_there(report):
    empty = report.script("""
        return [...document.querySelectorAll(".chart")]
            .filter((place) => !place.data?.length || !place.querySelector("svg.main-svg"))
            .map((place) => place.dataset.slot)
    """)
    assert empty == []
    found = set(report.script("return [...document.querySelectorAll('.chart')].map((place) => place.dataset.slot)"))
    assert {"error", "trajectory", "dimensions", "training", "disc", "scales", "gradient-start", "returns"} <= found
    assert {"mean", "iqm", "optimality_gap", "profiles"} <= found
    assert "koopman" in report.driver.find_element(By.ID, "reading").text


def test_models_are_told_apart_without_colour(report):
    traces = {trace["name"]: trace for trace in report.traces(report.chart("error")) if trace["symbol"]}
    assert len({(trace["dash"], trace["symbol"]) for trace in traces.values()}) == len(traces) == 2


def test_hovering_shows_values(report):
    chart = report.chart("error")
    ActionChains(report.driver).move_to_element(chart).move_by_offset(20, 0).perform()
    shown = report.wait(lambda: report.script("return arguments[0].querySelector('.hoverlayer').textContent", chart))
    assert "koopman" in shown
    assert "mlp" in shown


def test_the_legend_hides_a_model_with_its_band(report):
    chart = report.chart("error")
    toggles = chart.find_elements(By.CSS_SELECTOR, ".legend .legendtoggle")
    ActionChains(report.driver).move_to_element(toggles[0]).click().perform()

    def hidden():
        return [trace["name"] for trace in report.traces(chart) if trace["visible"] == "legendonly"]

    assert report.wait(hidden) == ["koopman", "koopman"]
    time.sleep(0.5)  # or the second click counts as a double click
    toggles = chart.find_elements(By.CSS_SELECTOR, ".legend .legendtoggle")
    ActionChains(report.driver).move_to_element(toggles[0]).click().perform()
    report.wait(lambda: not hidden())


def choose(report, control, value, section="data-0"):
    label = report.driver.find_element(
        By.CSS_SELECTOR, f'#{section} [data-control="{control}"] label:has(input[value="{value}"])'
    )
    report.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", label)
    label.click()


def test_controls_change_the_charts(report):
    chart = report.chart("error")
    before = report.traces(chart)[1]["y"]
    choose(report, "quantity", "reward")
    assert report.traces(chart)[1]["y"] != before
    choose(report, "scale", "linear")
    assert report.script("return arguments[0].layout.yaxis.type", chart) in (None, "linear")
    training = report.chart("training")
    steps = report.traces(training)[0]["x"]
    choose(report, "against", "seconds")
    assert report.traces(training)[0]["x"] != steps
    returns = report.chart("returns", "agent-0")
    choose(report, "shown", "seeds", "agent-0")
    assert len(report.traces(returns)) == 2


def test_the_picker_changes_window_and_component(report):
    chart = report.chart("trajectory")
    seen = [report.traces(chart)[0]["y"]]
    picker = report.driver.find_element(By.CSS_SELECTOR, '#data-0 [data-control="component"]')
    Select(picker).select_by_visible_text("reward")
    seen.append(report.traces(chart)[0]["y"])
    assert "reward" in chart.find_element(By.CSS_SELECTOR, ".ytitle").text
    report.driver.find_element(By.CSS_SELECTOR, '#data-0 [aria-label="next window"]').click()
    seen.append(report.traces(chart)[0]["y"])
    assert len({str(values) for values in seen}) == 3
    predicted = [trace for trace in report.traces(chart) if trace["name"] == "mlp"]
    assert len(predicted[0]["y"]) == len(seen[-1])


def test_the_video_plays(report):
    video = report.driver.find_element(By.CSS_SELECTOR, "#data-0 video")
    report.script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'}); arguments[0].play()", video)
    report.wait(lambda: report.script("return arguments[0].currentTime", video) > 0.1)
    assert report.script("return arguments[0].error", video) is None
    assert report.script("return [arguments[0].videoWidth, arguments[0].videoHeight]", video) == [672, 504]
    controls = report.driver.find_element(By.CSS_SELECTOR, "#data-0 .player-controls")
    below = "return arguments[1].getBoundingClientRect().top >= arguments[0].getBoundingClientRect().bottom"
    assert report.script(below, video, controls)
    assert video.get_attribute("controls") is None
    controls.find_element(By.TAG_NAME, "button").click()
    report.wait(lambda: report.script("return arguments[0].paused", video))
    step = "const [s] = arguments; s.value = 7; s.dispatchEvent(new Event('input'))"
    report.script(step, controls.find_element(By.TAG_NAME, "input"))
    report.wait(lambda: controls.find_element(By.TAG_NAME, "output").text == "step 7 of 12")
    assert "does not name its environment" in report.driver.find_element(By.ID, "data-1").text


def test_the_worst_window_is_among_those_shown(report):
    report.chart("trajectory")
    place = '#data-0 [data-slot="trajectory-controls"] [data-control="window"]'
    picker = Select(report.driver.find_element(By.CSS_SELECTOR, place))
    worst = next(option.text for option in picker.options if "for koopman" in option.text)
    assert "worst of" in worst
    picker.select_by_visible_text(worst)
    note = report.driver.find_element(By.CSS_SELECTOR, '#data-0 [data-slot="trajectory-note"]').text
    assert "(its largest error of all)" in note
    films = Select(report.driver.find_element(By.CSS_SELECTOR, '#data-0 [data-slot="video-controls"] select'))
    assert "worst of" in films.options[1].text


def test_modes_have_a_sentence_and_a_table(report):
    part = report.driver.find_element(By.CSS_SELECTOR, '#data-0 [data-part="spectrum"]')
    assert "dominate" in part.find_element(By.CSS_SELECTOR, '[data-slot="modes-text"]').text
    assert len(part.find_elements(By.CSS_SELECTOR, '[data-slot="modes"] tbody tr')) >= 2


def test_what_could_not_be_shown_is_told_in_a_box(report):
    box = report.driver.find_element(By.ID, "problems")
    assert box.is_displayed()
    assert "format 99" in box.text
    assert "no finished model" in box.text


def test_dark_mode_reaches_the_charts(report):
    def luminance(colour):
        digits = [int(colour.lstrip("#")[i : i + 2], 16) for i in (0, 2, 4)]
        return sum(digits) / 3 / 255

    chart = report.chart("error")
    colour = "return arguments[0].layout.font.color"
    assert luminance(report.script(colour, chart)) < 0.3
    report.look(dark=True)
    report.wait(lambda: luminance(report.script(colour, chart)) > 0.7)
    background = report.script("return getComputedStyle(document.body).backgroundColor")
    assert max(int(part) for part in background[4:-1].split(",")) < 60
    report.picture("dark.png")


def test_fits_a_phone(driver, page):
    report = Page.__new__(Page)
    report.driver = driver
    report.look(width=360)
    report.__init__(driver, page.as_uri())
    assert report.script("return document.documentElement.scrollWidth") <= 360
    too_wide = report.script("""
        return [...document.querySelectorAll(".chart, select, video, fieldset, p, h2, h3")]
            .filter((part) => part.getBoundingClientRect().right > 360.5).map((part) => part.outerHTML.slice(0, 80))
    """)
    assert too_wide == []
    report.picture("phone.png")


def test_names_stay_names_and_data_without_rewards_has_none(driver, evil_page):
    driver.get_log("performance")
    report = Page.__new__(Page)
    report.driver = driver
    report.look()
    report.__init__(driver, evil_page.as_uri())
    markup = "<script>window.hacked = 1</script>"
    chart = report.chart("error")
    ActionChains(driver).move_to_element(chart).move_by_offset(20, 0).perform()
    shown = report.wait(lambda: report.script("return arguments[0].querySelector('.hoverlayer').textContent", chart))
    link = '<a href="javascript:window.hacked=2">javascript:window.hacked=2</a>'
    assert link in shown
    assert link in report.script("return arguments[0].querySelector('.legend').textContent", chart)
    title = report.script("return arguments[0].querySelector('.ytitle').textContent", report.chart("trajectory"))
    assert title == f"{markup} ({link})"
    ticks = "return [...arguments[0].querySelectorAll('.ytick text')].map((tick) => tick.textContent)"
    assert set(report.script(ticks, report.chart("dimensions"))) == {markup, link}
    assert "&lt;b&gt; %{x}" in report.script(ticks, report.chart("mean", "aggregates"))[0]
    links = report.script("return [...document.querySelectorAll('a')].map((a) => a.getAttribute('href') ?? '')")
    assert all(address.startswith("#") for address in links)
    assert report.script("return document.querySelectorAll('svg a, main img, main script').length") == 0
    assert report.script("return window.hacked") is None
    # Rewards are neither in a chart nor in a table nor in a picker of the data's section.
    assert "reward" not in driver.find_element(By.ID, "data-0").text.lower().replace("hold no rewards", "")
    assert not driver.find_elements(By.CSS_SELECTOR, '#data-0 [data-slot="returns"], #data-0 [value="reward"]')
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    addresses = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert not [address[:80] for address in addresses if not address.startswith(("file:", "data:"))]
    report.picture("evil.png")


def test_nothing_was_said_on_the_console(report):
    """Last: hovering, picking, playing and resizing left no error behind."""
    assert not [entry for entry in report.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
