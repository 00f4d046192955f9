"""Build the documentation's site: the README and all that its pages lead to, at the places of the repository.

A page's link to a file of code leads to that file in the site, so no link leaves it, and a broken one ends the build.
`make docs-site` calls it with the Python of `.venv-docs`; the site is in site/html.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "site"
# Of code, too: a page's listings hold `](` but rarely a path that exists.
_LINK = re.compile(r"(?<=\]\()[^)\s:#]+(?=[)#])")
sys.path.insert(0, str(ROOT))


def main() -> None:
    pages = SITE / "pages"
    shutil.rmtree(SITE, ignore_errors=True)
    waiting, done = [Path("README.md"), Path("CONTRIBUTING.md"), Path("CHANGELOG.md")], set()
    while waiting:
        path = waiting.pop()
        if path in done:
            continue
        done.add(path)
        (pages / path).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = (ROOT / path).read_text() if (ROOT / path).is_file() else _listing(path.parent)
            text = _LINK.sub(lambda link, path=path: _target(path, link[0]), text)
            (pages / path).write_text(text)
            waiting += [_resolved(path, link) for link in _LINK.findall(text) if _exists(path, link)]
        else:
            shutil.copyfile(ROOT / path, pages / path)
    (pages / "docs" / "api.md").write_text(_api())
    settings = (ROOT / "docs" / "zensical.toml").read_text()
    # Zensical itself says nothing of these.
    if missing := [page for page in re.findall(r'= "(.*\.md)"', settings) if not (pages / page).is_file()]:
        sys.exit(f"docs/zensical.toml: no such page, or no page of the README's leads to it: {', '.join(missing)}")
    (SITE / "zensical.toml").write_text(settings)
    build = [Path(sys.executable).with_name("zensical"), "build", "--strict"]
    sys.exit(subprocess.run([*build, "--config-file", SITE / "zensical.toml"], cwd=SITE).returncode)


def _resolved(page: Path, link: str) -> Path:
    return (ROOT / page.parent / link).resolve().relative_to(ROOT)


def _exists(page: Path, link: str) -> bool:
    path = ROOT / page.parent / link
    return path.is_file() or (path.name in ("README.md", "index.md") and path.parent.is_dir())


def _target(page: Path, link: str) -> str:
    """The link, of a folder to its page."""
    folder = ROOT / page.parent / link
    return (
        f"{link.rstrip('/')}/{'README' if (folder / 'README.md').is_file() else 'index'}.md"
        if folder.is_dir()
        else link
    )


def _listing(folder: Path) -> str:
    """The page of a folder that has none: its files, pages by their titles."""
    rows = []
    for file in sorted(path for path in (ROOT / folder).iterdir() if path.is_file()):
        title = file.read_text().partition("\n")[0].lstrip("# ") if file.suffix == ".md" else file.name
        rows.append(f"- [{title}]({file.name})")
    return "\n".join([f"# {folder}", "", *rows, ""])


def _api() -> str:
    """The page of the public names of `bert_keras`, from their docstrings."""
    import bert_keras

    names = [f"::: {module}.{name}\n" for name, module in sorted(bert_keras._MODULES.items())]
    return "\n".join(["# The library `bert_keras`\n", "[library.md](library.md) has examples.\n", *names])


if __name__ == "__main__":
    main()
