"""The documentation's site: it builds without a broken link and loads nothing from elsewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REASON = "mkdocs is not installed: pip install -e '.[docs]', or make setup"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. A warning, such as of a broken link or anchor, fails the build."""
    for module in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(module, reason=REASON)
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    settings = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=ROOT, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return folder


def test_the_site_has_every_page_and_its_pictures(site):
    for page in (ROOT / "docs").rglob("*.md"):
        where = page.relative_to(ROOT / "docs").with_suffix("")
        if where.name == "README":
            where = where.parent
        elif str(where) == "methods":  # the folder of the same name has a page too
            where = Path("the-method")
        assert (site / where / "index.html").exists(), page
    for name in ("index.html", "changelog/index.html", "contributing/index.html", "demo.png"):
        assert (site / name).exists()
    for picture in (ROOT / "docs" / "results").glob("*.png"):
        assert (site / "results" / picture.name).exists()


def test_links_to_the_source_show_it(site):
    shown = (site / "source/surprise_memory/training/loop.py/index.html").read_text()
    assert "collect_or_save" in shown
    rooms = (site / "source/surprise_memory/surprise/index.html").read_text()
    assert 'href="rnd.py/"' in rooms
    assert 'href="../source/surprise_memory/nn/"' in (site / "architecture/index.html").read_text()


def test_the_reference_has_what_is_public(site):
    import surprise_memory

    text = "".join(page.read_text() for page in (site / "api").rglob("index.html"))
    known = set(re.findall(r'id="surprise_memory\.[\w.]*?(\w+)"', text))
    assert [name for name in surprise_memory.__all__ if name not in known] == []


def test_the_site_loads_nothing_from_other_hosts(site):
    """Links to other hosts are fine; scripts, styles, fonts and pictures from there are not."""
    loads = re.compile(
        r"""<(?:script|img|iframe|source)[^>]+src=["']?(?:https?:)?//[^>]*>"""
        r"""|<link(?![^>]*rel="?(?:canonical|next|prev))[^>]+href=["']?(?:https?:)?//[^>]*>"""
        r"""|@import[^;]*//|url\(["']?(?:https?:)?//[^)]*"""
    )
    for page in [*site.rglob("*.html"), *site.rglob("*.css")]:
        if page.is_dir():  # the page of a source
            continue
        found = loads.search(page.read_text())
        assert found is None, f"{page.relative_to(site)}: {found[0]}"
