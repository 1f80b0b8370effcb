"""Gathers what the documentation site is made of into one folder for MkDocs.

Pages come from docs/, from the files of the project (changelog, papers, measurements) with their links rewritten, from the program
itself (`--help` of every command, pictures that its commands draw) and from running the examples of the Python package. What is
generated is never committed, so it cannot be out of date.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Files outside docs/ that become pages, and where.
PAGES = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "RELEASING.md": "project/releasing.md",
    "SECURITY.md": "project/security.md",
    "benches/RESULTS.md": "project/measurements.md",
}
LINK = re.compile(r"(!?\[[^\]]*\])\(([^()\s]+)\)")
SPACING = re.compile(r"^(`{3,}|~{3,})")


def mapping():
    """Site path of every file of the repository that is on the site."""
    found = {}
    for path in sorted((ROOT / "docs").rglob("*")):
        local = path.relative_to(ROOT / "docs")
        if path.is_file() and local.parts[0] != "tools" and path.suffix in {".md", ".png", ".svg", ".css"}:
            found[path] = str(local)
    for path in sorted((ROOT / "papers").rglob("*")):
        if path.is_file() and path.suffix in {".md", ".svg"} and "data" not in path.parts:
            found[path] = str(path.relative_to(ROOT))
    found.update({ROOT / source: page for source, page in PAGES.items()})
    return found


def rewrite(text, source, page, pages):
    """Links between files of the repository as links between pages; what has no page becomes plain text."""

    def link(match):
        label, target = match.groups()
        if re.match(r"[a-z]+:|#|/", target):
            return match[0]
        name, _, anchor = target.partition("#")
        path = Path(os.path.normpath(source.parent / name))
        if path.is_dir() and path / "README.md" in pages:
            path = path / "README.md"
        if path in pages:
            relative = os.path.relpath(pages[path], os.path.dirname(page) or ".")
            return f"{label}({relative}{'#' + anchor if anchor else ''})"
        if path.exists():
            return label[1:-1]
        # Made by this script, or broken: MkDocs will tell.
        return match[0]

    out, fence = [], None
    for line in text.splitlines(keepends=True):
        mark = SPACING.match(line)
        if mark and fence is None:
            fence = mark[1]
        elif fence is not None and line.startswith(fence):
            fence = None
        out.append(line if fence is not None or mark or line.startswith("    ") else LINK.sub(link, line))
    return "".join(out)


def check_sources():
    """Links between files of the repository, as they are followed where the repository is read: README.md is not on the site."""
    sources = [*ROOT.glob("*.md"), *ROOT.glob("python/*.md"), *ROOT.glob("papers/**/*.md"), *ROOT.glob("benches/*.md")]
    wrong = []
    for source in sorted(sources):
        text = re.sub(r"^(```.*?^```|    .*?$)", "", source.read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\(([^()\s]+)\)|<img src=\"([^\"]+)\"", text):
            name = (target[0] or target[1]).partition("#")[0]
            if name and not re.match(r"[a-z]+:", name) and not (source.parent / name).exists():
                wrong.append(f"{source.relative_to(ROOT)}: {name} does not exist")
    if wrong:
        sys.exit("stage.py: broken links\n" + "\n".join(wrong))


def run(program, *args, **options):
    done = subprocess.run([program, *args], capture_output=True, text=True, timeout=300, **options)
    if done.returncode != 0:
        sys.exit(f"stage.py: {' '.join([str(program), *args])} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def commands(program, out):
    """One page for each command, from its own --help."""
    wide = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    version = run(program, "--version").strip()
    top = run(program, "--help", env=wide)
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", top, re.M)
    names = [
        (line.split()[0], " ".join(line.split()[1:])) for line in listed[1].splitlines() if not line.startswith("   ")
    ]
    out.mkdir(parents=True)
    index = [
        "# Commands\n",
        f"Generated from `--help` of `{version}`. Every command but those with LIBSVM's options (`svm-…`) takes `--json`, `--quiet`, `--threads` and `--seed`.\n",
        "| command | what it does |\n|---|---|",
    ]
    for name, about in names:
        if name == "help":
            continue
        index.append(f"| [`margrave {name}`]({name}.md) | {about} |")
        text = run(program, name, "--help", env=wide)
        page = [f"# margrave {name}\n", f"{about}.\n", "```text\n" + text.rstrip() + "\n```\n"]
        inner = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.M)
        for line in inner[1].splitlines() if inner else []:
            sub = line.split()[0]
            if sub != "help" and not line.startswith("   "):
                page += [
                    f"## margrave {name} {sub}\n",
                    "```text\n" + run(program, name, sub, "--help", env=wide).rstrip() + "\n```\n",
                ]
        (out / f"{name}.md").write_text("\n".join(page))
    index.append("\n```text\n" + top.rstrip() + "\n```\n")
    (out / "index.md").write_text("\n".join(index))


def pictures(program, out):
    """Pictures that the commands draw, from the data the program carries."""
    out.mkdir(parents=True)
    work = out / "work"
    run(program, "demo", "-o", str(work), "-q")
    data = str(work / "heart_scale.svm")
    model = str(work / "heart.model")
    run(program, "plot", model, data, "--features", "9,11", "-o", str(out / "plot.png"), "-q")
    run(program, "tune", data, "--plot", str(out / "tune.svg"), "-q")
    run(program, "path", data, "--lambdas", "1e-6..1e3*2", "--plot", str(out / "path.svg"), "-q")
    run(program, "losses", "--plot", str(out / "losses.svg"), "-q")
    shutil.copy(work / "heart.html", out / "report.html")
    shutil.rmtree(work)


def gallery(python, out, pages):
    """A page for each Python example: text, code, and what running it printed and drew."""
    entries = []
    for example in sorted((ROOT / "python/examples").glob("*.py")):
        name = example.stem
        cells = re.split(r"^# %%", example.read_text(), flags=re.M)[1:]
        page, first, title = [], "", name
        for cell in cells:
            head, _, body = cell.partition("\n")
            if "[markdown]" in head:
                text = re.sub(r"^# ?", "", body, flags=re.M).strip()
                if not page:
                    title = text.splitlines()[0].lstrip("# ")
                    first = " ".join(text.splitlines()[1:]).strip()
                page.append(text + "\n")
            else:
                page.append("```python\n" + re.sub(r"  # noqa.*", "", body).strip() + "\n```\n")
        picture = ""
        if python:
            printed, drawn = perform(python, example, out)
            page += ["## What it prints\n", "```text\n" + printed.rstrip() + "\n```\n"]
            if drawn:
                picture = f"![{title}]({drawn})"
                page.insert(1, picture + "\n")
        page.append(f"The file is `python/examples/{example.name}`; every example is also a test.\n")
        (out / f"{name}.md").write_text("\n".join(page))
        entries.append(f"### [{title}]({name}.md)\n\n{first}\n\n{picture}\n")
    if not python:
        entries.insert(
            0,
            "!!! note\n    This copy of the site was built without the Python package: pictures and output of the examples are missing.\n",
        )
    head = (ROOT / "docs/gallery/index.md").read_text()
    (out / "index.md").write_text(
        rewrite(head, ROOT / "docs/gallery/index.md", "gallery/index.md", pages) + "\n" + "\n".join(entries)
    )


def perform(python, example, out):
    """Runs an example and its picture, if docs/tools/pictures.py has one for it; returns what was printed and the picture's name."""
    code = (
        "import sys, runpy; sys.path.insert(0, sys.argv[1]); names = runpy.run_path(sys.argv[2], run_name='__main__')\n"
        "import pictures; pictures.draw(sys.argv[3], names, sys.argv[4])"
    )
    drawn = out / f"{example.stem}.svg"
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONDONTWRITEBYTECODE": "1"}
    printed = run(
        python, "-c", code, str(ROOT / "docs/tools"), str(example), example.stem, str(drawn), cwd=out, env=environment
    )
    return printed, drawn.name if drawn.exists() else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True, help="the program margrave")
    parser.add_argument("--python", help="a Python that has the package, to run the examples with")
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    out = ROOT / args.out
    check_sources()
    shutil.rmtree(out, ignore_errors=True)
    pages = mapping()
    for source, page in pages.items():
        target = out / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(rewrite(source.read_text(), source, page, pages))
        else:
            shutil.copy(source, target)
    commands(program, out / "commands")
    pictures(program, out / "gallery/program")
    # Not resolved: a virtual environment is found by the path of its link.
    gallery(os.path.abspath(args.python) if args.python else None, out / "gallery", pages)


if __name__ == "__main__":
    main()
