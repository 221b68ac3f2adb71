"""How Sphinx makes the site of what docs/build.py lays out: offline, nothing from other hosts."""
from configparser import ConfigParser
from functools import cache
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.search.en import SearchEnglish

_parser = ConfigParser(delimiters=["="])
_parser.read(Path(__file__).resolve().parent.parent/"settings.ini", encoding="utf-8")
_settings = _parser["DEFAULT"]

project, release = _settings["title"], _settings["version"]
author = copyright = _settings["copyright"]
extensions = ["myst_nb"]
nb_execution_mode = "off"
nb_ipywidgets_js = {} # else from another host
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = project
html_static_path, html_css_files = ["static"], ["site.css"]
html_search_scorer = str(Path(__file__).resolve().parent/"scorer.js") # pages that explain come before executed copies
html_show_sourcelink = html_copy_source = False
html_math_renderer = "mathml"

SearchEnglish.stem = cache(SearchEnglish.stem) # the stemmer is slow, and the pages have few distinct words


def _inline(self, node: nodes.math) -> None:
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(self, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app) -> None:
    "Formulas as MathML, which every browser draws without a script."
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
