"""The documentation site: `sphinx-build -W docs site` (extra `docs`). Every page is readable as plain Markdown too."""

import os

from trueup.version import __version__

project = "trueup"
author = "the authors of trueup"
release = version = __version__

extensions = ["myst_nb", "sphinx_copybutton"]
exclude_patterns = ["_build", "Thumbs.db"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "off"
"""Examples run as doctests: one check of them is enough."""

html_theme = "pydata_sphinx_theme"
html_title = f"trueup {release}"
html_sidebars = {"**": []}
"""All pages are on one level, so that a sidebar would be empty and pictures small."""
html_theme_options = {
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
if address := os.environ.get("DOCS_ADDRESS"):  # where all versions stand, each in a folder of its own
    html_theme_options |= {
        "switcher": {"json_url": f"{address}/versions.json", "version_match": release},
        "check_switcher": False,
        "navbar_start": ["navbar-logo", "version-switcher"],
    }
html_show_sphinx = False
