"""MkDocs hook: replaces `folder/*` in the navigation by the pages of that folder, so that a new command or example needs no edit."""

from pathlib import Path


def on_config(config):
    config["nav"] = [_fill(item, Path(config["docs_dir"])) for item in config["nav"]]
    return config


def _fill(item, docs):
    if isinstance(item, dict):
        return {
            title: [page for child in inside for page in _pages(child, docs)] if isinstance(inside, list) else inside
            for title, inside in item.items()
        }
    return item


def _pages(item, docs):
    if isinstance(item, str) and item.endswith("/*"):
        folder = item[:-2]
        return [f"{folder}/{page.name}" for page in sorted((docs / folder).glob("*.md")) if page.name != "index.md"]
    return [_fill(item, docs)]
