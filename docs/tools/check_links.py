"""Checks a built site: every internal link and anchor exists, and no page loads external resources.

usage: check_links.py SITE

External links are checked for their syntax only, so that the check works without a network. Exit code 1 if there are errors.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: What a browser loads automatically.
LOADS = {
    ("link", "href"),
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("object", "data"),
}


class Page(HTMLParser):
    """Anchors and links of a page."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loads = set(), [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        for key in ("id", "name"):
            if attrs.get(key):
                self.anchors.add(attrs[key])
        # A link to where the page itself would be published is not fetched.
        passive = tag == "link" and attrs.get("rel") in {"canonical", "prev", "next", "alternate"}
        for key in ("href", "src", "data"):
            if attrs.get(key) is not None:
                (self.loads if (tag, key) in LOADS and not passive else self.links).append(attrs[key])


def main():
    site = Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in sorted(site.rglob("*.html"))}
    wrong, count, external = [], 0, 0
    for path, page in pages.items():
        at = path.relative_to(site)
        for kind, target in [("link", t) for t in page.links] + [("load", t) for t in page.loads]:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if kind == "load" and parts.scheme != "data":
                    wrong.append(f"{at}: loads {target} from elsewhere")
                elif parts.scheme in {"http", "https"} and not re.fullmatch(r"[\w.-]+(:\d+)?", parts.netloc):
                    wrong.append(f"{at}: no such address: {target}")
                external += 1
                continue
            count += 1
            file = (
                path
                if not parts.path
                else (site if parts.path.startswith("/") else path.parent) / unquote(parts.path).lstrip("/")
            )
            file = file.resolve()
            if file.is_dir():
                file = file / "index.html"
            # The page for missing pages is served anywhere and has absolute links.
            if not file.is_file():
                wrong.append(f"{at}: {target} does not exist")
            elif parts.fragment and file in pages and unquote(parts.fragment) not in pages[file].anchors:
                wrong.append(f"{at}: {target} has no such anchor")
    for style in site.rglob("*.css"):
        for target in re.findall(r"(?:url\(|@import\s+)[\"']?(https?:)?//", style.read_text(encoding="utf-8")):
            wrong.append(f"{style.relative_to(site)}: loads {target} from elsewhere")
    print(f"{len(pages)} pages, {count} internal links, {external} external links, {len(wrong)} problems")
    print("\n".join(wrong))
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
