"""Pages for a browser: what they contain, and what a browser finds that is too wide, cut off or broken."""

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest


class Reader(HTMLParser):
    """Tags, text and addresses of a page."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.texts, self.addresses = [], [], []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href", "action", "data", "srcset")]
        assert not any(name.startswith("on") for name, _ in attributes)

    def handle_data(self, data):
        self.texts.append(data.strip())


BROWSER = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium here; install the package chromium")
PROBE = """<script>addEventListener("load", () => {
  const cut = [...document.querySelectorAll("h1,h2,h3,p,li,td,th,img,figcaption,a,pre")].filter(each => {
    const box = each.getBoundingClientRect();
    const beyond = each.clientWidth && each.scrollWidth > each.clientWidth + 1;
    return (box.right > innerWidth + 1 || box.left < -1 || beyond) && !each.closest(".wide,pre");
  });
  const squeezed = [...document.querySelectorAll("th,td")].filter(each =>
    each.getClientRects().length && each.offsetWidth < 24 && each.innerText);
  parent.postMessage(JSON.stringify({
    images: [...document.images].map(each => each.complete && each.naturalWidth > 0 && each.offsetWidth > 100),
    scripts: document.scripts.length, width: innerWidth, page: document.documentElement.scrollWidth,
    cut: cut.map(each => each.outerHTML.slice(0, 80)), squeezed: squeezed.length,
    beyond: [...document.querySelectorAll(".wide")].filter(each => each.scrollWidth > each.clientWidth + 1).length,
    more: (() => {SCRIPT})(),
  }), "*");
})</script></body>"""
FRAME = """<script>addEventListener("message", heard => {{ document.body.dataset.found = heard.data }})</script>
<body><iframe src="probed.html" width="{width}" height="900" style="border: 0"></iframe></body>"""


def browse(page, *words):
    command = [
        BROWSER,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--hide-scrollbars",
    ]
    return subprocess.run([*command, *words, page.as_uri()], capture_output=True, text=True, check=True, timeout=120)


def probe(text, folder, width, script="return null"):
    """Return what the probe finds in a frame of this width, as windows are wider, and what the browser logs.

    The policy of a page, under which no script but its own runs, is taken out. `script` returns more to be found.
    """
    text = re.sub(r"<meta http-equiv.*?>", "", text, flags=re.DOTALL)
    (folder / "probed.html").write_text(text.replace("</body>", PROBE.replace("SCRIPT", script)), encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.format(width=width), encoding="utf-8")
    done = browse(
        folder / "frame.html", f"--window-size={width + 100},1000", "--virtual-time-budget=10000", "--dump-dom"
    )
    return json.loads(html.unescape(re.search(r'data-found="(.*?)"', done.stdout)[1])), done.stderr


def pages_of_print(page, folder):
    """Return the number of pages that a browser prints."""
    browse(page, "--no-pdf-header-footer", f"--print-to-pdf={folder / 'page.pdf'}")
    content = (folder / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    return len(re.findall(rb"/Type\s*/Page\b", content))
