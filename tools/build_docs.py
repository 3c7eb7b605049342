#!/usr/bin/env python3
"""Builds the site of the documentation in build/docs/site, which needs no network to be read.

build_docs.py           makes an environment with mkdocs-material in build/docs/venv, from PyPI, if there is none
build_docs.py --pages   only collects the pages in build/docs/pages

The pages are README.md, docs/ and a reference page for each public header. Each page of the site has its Markdown beside
it, with the suffix .md.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "docs"
PAGES = WORK / "pages"
PACKAGES = ("mkdocs==1.6.1", "mkdocs-material==9.8.1")
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")


def collect():
    """Copies the pages so that mkdocs finds them: docs/ at the top, README.md as the index."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    subprocess.run([sys.executable, ROOT / "tools" / "reference.py", PAGES / "reference"], check=True)
    shutil.copy(ROOT / "README.md", PAGES / "index.md")
    for page in PAGES.rglob("*.md"):
        relative = page.relative_to(PAGES)
        source = ROOT / "README.md" if relative.name == "index.md" else ROOT / "docs" / relative
        page.write_text(adapt(page.read_text(encoding="utf-8"), source, page), encoding="utf-8")


def adapt(text, source, page):
    """Replaces links to what the site does not have (sources, folders) by the path in the source tree."""

    def replace(match):
        target = match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        file = (source.parent / target).resolve()
        if file == ROOT / "README.md":
            return f"{match[1]}{relative_to(PAGES / 'index.md', page)}{match[3] or ''}{match[4]}"
        if file.is_dir() and (file / "README.md").exists() and file.is_relative_to(ROOT / "docs"):
            file = file / "README.md"
        if file.is_relative_to(ROOT / "docs") and file.is_file():
            return f"{match[1]}{relative_to(PAGES / file.relative_to(ROOT / 'docs'), page)}{match[3] or ''}{match[4]}"
        return match[0] if (page.parent / target).exists() else f"] (`{file.relative_to(ROOT)}`)"

    lines, fenced = [], False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        replaced = line if fenced else LINK.sub(replace, line)
        lines.append(re.sub(r"\[([^\]]*)\] \((`[^`]*`)\)", r"\1 (\2)", replaced))
    return "\n".join(lines) + "\n"


def relative_to(target, page):
    return pathlib.Path(*[".."] * len(page.parent.relative_to(PAGES).parts), target.relative_to(PAGES)).as_posix()


def navigation():
    """Returns mkdocs.yml with the lists of pages filled in."""
    text = (ROOT / "tools" / "docs" / "mkdocs.yml").read_text(encoding="utf-8")

    def listed(folder, pages):
        return f"  - {folder}:\n" + "".join(f"    - {page.relative_to(PAGES).as_posix()}\n" for page in pages)

    top = sorted(page for page in PAGES.glob("*.md") if page.name != "index.md")
    for title in ("Guide", "Transports", "Reference", "Decisions"):
        pages = sorted((PAGES / title.lower()).rglob("*.md"), key=lambda page: (page.name != "README.md", page))
        text = text.replace(f"  - {title}: {title.lower()}/\n", listed(title, pages))
    others = [page for page in PAGES.rglob("*.md") if page.parent != PAGES and
              page.relative_to(PAGES).parts[0] not in ("guide", "transports", "reference", "decisions")]
    return text.replace("  - Pages: pages/\n", listed("Pages", [*top, *sorted(others)]))


def build():
    mkdocs = WORK / "venv" / "bin" / "mkdocs"
    if not mkdocs.exists():
        subprocess.run([sys.executable, "-m", "venv", WORK / "venv"], check=True)
        subprocess.run([WORK / "venv" / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
    config = WORK / "mkdocs.yml"
    config.write_text(navigation().replace("../../build/docs/", ""), encoding="utf-8")
    subprocess.run([mkdocs, "build", "--strict", "--quiet", "--config-file", config], check=True)
    for page in PAGES.rglob("*.md"):
        shutil.copy(page, WORK / "site" / page.relative_to(PAGES))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", action="store_true")
    arguments = parser.parse_args()
    collect()
    if not arguments.pages:
        build()
        print(f"wrote {(WORK / 'site' / 'index.html').relative_to(ROOT)}")


if __name__ == "__main__":
    main()
