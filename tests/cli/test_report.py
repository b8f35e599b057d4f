"""``collsim report``: one HTML file that needs nothing else, with every mark in its place, and what it refuses."""

import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

from collsim import write_report

from .conftest import GUARD_S, ROOT

LOG = ROOT / "examples" / "h100_all_reduce.log"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
VOID = {"meta", "br", "link", "img", "hr"}
SVG = "{http://www.w3.org/2000/svg}"


class Page(HTMLParser):
    """Tags of a page, which have to be closed in their order, and attributes that would fetch something."""

    def __init__(self, text):
        super().__init__()
        self.text, self.open, self.tags, self.fetched, self.words = text, [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)

    @property
    def pictures(self):
        return [ET.fromstring(text) for text in re.findall(r"<svg .*?</svg>", self.text, re.DOTALL)]

    def marks(self, look):
        return [mark for picture in self.pictures for mark in picture.iter() if look in mark.get("class", "").split()]


@pytest.fixture
def run(collsim, tmp_path):
    """Write the JSON of a run into a file and return its path."""

    def call(name, *arguments):
        file = tmp_path / f"{name}.json"
        found = collsim(*arguments, "--format", "json", "-q")
        assert found.code in (0, 1), found.err
        file.write_text(found.out)
        return file

    return call


HGX = ("run", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M,4M,16M")


def test_a_page_needs_nothing_else(collsim, run, tmp_path):
    file = tmp_path / "report.html"
    assert collsim("report", run("run", *HGX), LOG, "-o", file, "-q").code == 0
    page = Page(file.read_text())
    assert page.fetched == []
    assert "script" not in page.tags
    assert re.findall(r"(?:https?:)?//[\w.]+", page.text.replace("http://www.w3.org/2000/svg", "")) == []
    assert "url(" not in page.text
    assert "@import" not in page.text
    assert "prefers-color-scheme: dark" in page.text
    assert "@media print" in page.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "run.json"]


def test_every_mark_is_there(collsim, run, tmp_path):
    """Three sizes are three dots and whiskers and one band; the log has six rows; 8 GPUs, 4 switches, 32 pairs."""
    file = tmp_path / "report.html"
    assert collsim("report", run("run", *HGX), LOG, "-o", file, "-q").code == 0
    page = Page(file.read_text())
    assert [len(page.marks(look)) for look in ("dot", "whisker", "band", "bound", "curve", "m")] == [3, 3, 1, 1, 1, 6]
    assert len(page.marks("load")) == 8 * 4
    assert len(page.marks("box")) == 8 + 4
    parts = page.marks("part")
    assert sum(float(part.get("width")) + 1 for part in parts) == pytest.approx(920, abs=2)
    told = " ".join(page.words)
    for text in ("Error band", "90 % of measured times lie there", "Limited by", "What would help most", "Lower bound"):
        assert text in told
    assert page.marks("flow")


def test_points_stand_where_they_were_measured(run, tmp_path):
    """A measured point at the busbw of a predicted one has its place."""
    result = run("run", *HGX)
    row = json.loads(result.read_text())["results"][2]
    log = tmp_path / "own.log"
    log.write_text(f"# all_reduce_perf, nranks 8\n16777216 4194304 float sum -1 {row['time_s'] * 1e6:.2f} "
                   f"{row['algbw_Bps'] / 1e9:.2f} {row['busbw_Bps'] / 1e9:.2f} 0\n")  # fmt: skip
    write_report([result, log], tmp_path / "report.html", explain=False)
    page = Page((tmp_path / "report.html").read_text())
    (point,), dot = page.marks("m"), page.marks("dot")[2]
    assert float(point.get("cx")) == pytest.approx(float(dot.get("cx")), abs=0.2)
    assert float(point.get("cy")) == pytest.approx(float(dot.get("cy")), abs=0.5)


@pytest.mark.parametrize(
    ("arguments", "dots", "words"),
    [
        (("compare", "mi300x_ubb8", "hgx_h100", "--op", "all_reduce", "--size", "1M,64M"), 4, "times as fast"),
        (("validate", LOG, "--topo", "hgx_h100"), 6, "slower"),
        (("moe", "--topo", "hgx_h100", "--ep", "8", "--model", "deepseek-v3"), 0, "dispatch"),
        (("diagnose", LOG, "--topo", "hgx_h100", "--causes", "nvls_off"), None, "Verdict"),
        (("timeline", "examples/training_step.yaml"), 0, "Critical path"),
        (("sweep", "examples/sweep.yaml"), 36, "limited by, or error"),
        (("tune", "--topo", "hgx_h100", "--op", "all_reduce", "--size", "1M,2M"), 0, "within error"),
        (("serve", "examples/serving.yaml"), 0, "capacity tokens (1/s)"),
        (
            ("moe", "--topo", "hgx_h100", "--compare", "hgx_b200", "--ep", "8", "--load-only"),
            0,
            "hgx_b200: times as fast",
        ),
        (("compare", "hgx_h100", "hgx_b200", "--workload", "examples/training_step.yaml"), 0, "kernel backward"),
        (("explain", "--topo", "mi300x_ubb8", "--op", "all_to_all", "--size", "1M", "--no-what-ifs"), 1, "gpu0->gpu1"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_documents_of_all_commands(collsim, run, monkeypatch, arguments, dots, words):
    monkeypatch.chdir(ROOT)
    page = Page(collsim("report", run("one", *arguments), "--no-explain", "-q").out)
    assert words in " ".join(page.words)
    if dots is not None:
        assert len(page.marks("dot")) == dots


def test_a_page_of_a_sweep_has_a_line_for_each_choice_and_its_front(collsim, tmp_path):
    """Two systems by three sizes, one point failed: two lines of dots, and what beats the others first."""
    grid, swept = tmp_path / "grid.yaml", tmp_path / "swept.json"
    grid.write_text("schema: collsim.sweep/1\nbase: {op: all_to_all, profile: ideal}\n"
                    "grid: {topo: [hgx_h100, hgx_b200], ranks: [8, 9], size: [1M, 2M, 4M]}\n")  # fmt: skip
    swept.write_text(collsim("sweep", grid, "--format", "json", "-q").out)
    page = Page(collsim("report", swept, "-q").out)
    assert (len(page.marks("curve")), len(page.marks("dot"))) == (2, 6)
    told = " ".join(page.words)
    assert "9 ranks on 8 GPUs" in told
    assert "hgx_b200" in told
    swept.write_text(collsim("sweep", grid, "--format", "json", "--pareto", "time,cost", "-q").out)
    collsim("sweep", grid, "-o", tmp_path / "points.jsonl", "-q")
    lines = Page(collsim("report", tmp_path / "points.jsonl", "-q").out)
    assert (len(lines.marks("curve")), len(lines.marks("dot"))) == (2, 6)
    front = " ".join(Page(collsim("report", swept, "-q").out).words)
    assert "Not beaten in time and cost" in front
    assert "9 ranks on 8 GPUs" not in front
    (tmp_path / "points.jsonl").write_text((tmp_path / "points.jsonl").read_text() + '{"schema"\n{"a": ')
    broken = collsim("report", tmp_path / "points.jsonl", "-q")
    assert broken.code == 2
    assert "points.jsonl:13: no point of a sweep" in broken.err


def test_a_cluster_is_drawn_by_its_tiers(collsim, run):
    file = run("cluster", "run", "--topo", "h100_rail", "--nodes", "8", "--op", "all_to_all", "--size", "64M")
    page = Page(collsim("report", file, "--no-what-ifs", "-q").out)
    assert {"GPUs", "adapters", "leaf switches", "NVLink switches"} <= {box.text for box in page.marks("name")}
    assert len(page.marks("hot")) == 1


def test_everything_wrong_is_told_at_once(collsim, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"schema": "collsim.config/1", "config": {}}')
    empty = tmp_path / "empty.json"
    empty.write_text('{"schema": "collsim.result/1", "config": {}}')
    prose = tmp_path / "prose.txt"
    prose.write_text("nothing to see\n")
    found = collsim("report", config, empty, prose, tmp_path / "none.json", "-o", tmp_path / "report.pdf")
    assert found.code == 2
    assert found.err.count("error: ") == 5
    for text in ("does not show", "without config, topology, results", "no usable row", "cannot be read", '".pdf"'):
        assert text in found.err
    assert "Traceback" not in found.err
    assert not (tmp_path / "report.pdf").exists()
    assert collsim("report", empty, "-o", empty).code == 2, "it would replace what it reads"
    odd = tmp_path / "odd.json"
    odd.write_text(
        '{"schema": "collsim.result/1", "config": {"op": 3}, "topology": {"name": 1}, "results": [{"op": 3}]}'
    )
    for more in ((), ("--no-explain",)):
        found = collsim("report", odd, *more)
        assert (found.code, found.out) == (2, "")
        for place in ("config.op", "topology.name", "results[0].op"):
            assert f"odd.json: {place}: " in found.err


def test_what_is_wider_than_the_screen_scrolls_and_shows_where(collsim, run, tmp_path):
    """Every table stands in a box that scrolls, whose shadows stay and whose covers scroll along."""
    file = tmp_path / "report.html"
    assert collsim("report", run("run", *HGX), LOG, "-o", file, "-q", "--no-explain").code == 0
    text = file.read_text(encoding="utf-8")
    assert text.count("<table>") == text.count('<div class="wide"><table>') > 0
    (rule,) = re.findall(r"(?s)\.wide,figure \{\s*overflow-x:auto;(.*?)\}", text)
    assert re.findall(r"no-repeat (\w+)", rule) == ["local", "local", "scroll", "scroll"]


@pytest.mark.deep
@pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
def test_a_browser_has_nothing_to_complain_of(collsim, run, tmp_path):
    file = tmp_path / "report.html"
    assert collsim("report", run("run", *HGX), LOG, "-o", file, "-q").code == 0
    command = [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'browser'}",
        "--enable-logging=stderr", "--window-size=1000,1400", f"--screenshot={tmp_path / 'page.png'}", file.as_uri(),
    ]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=GUARD_S)
    assert "CONSOLE" not in found.stderr
    assert (tmp_path / "page.png").stat().st_size > 50_000, "not an empty page"


def test_a_page_says_how_many_nodes_and_what_to_read_first(collsim, run, tmp_path):
    """Nodes stand in the title; warnings, such as of a derived profile, stand below the first cards."""
    file = run("few", "run", "--topo", "mi325x_ubb8", "--nodes", "2", "--op", "all_reduce", "--size", "1M")
    warnings = json.loads(file.read_text())["warnings"]
    assert any("is derived, not measured" in text for text in warnings)
    page = tmp_path / "few.html"
    assert collsim("report", file, "-o", page).code == 0
    text = page.read_text()
    assert "<h1>all_reduce on 2 nodes of mi325x_ubb8</h1>" in text
    assert "on 2 nodes of mi325x_ubb8, explained</h2>" in text
    first = text.index("is derived, not measured")
    assert text.index('<div class="cards">') < first < text.index("<h3>")
    assert text.count("is derived, not measured") == 1
