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
PAGES = SITE / "pages"
_LINK = re.compile(r"(?<=\]\()[^)\s:#]+(?=[)#])")
sys.path.insert(0, str(ROOT))


def main() -> None:
    shutil.rmtree(SITE, ignore_errors=True)
    waiting, done = [Path("README.md"), Path("CONTRIBUTING.md"), Path("CHANGELOG.md")], set()
    while waiting:
        if (path := waiting.pop()) not in done:
            done.add(path)
            waiting += _lay(path)
    (PAGES / "docs" / "api.md").write_text(_api())
    settings = (ROOT / "docs" / "zensical.toml").read_text()
    # Zensical itself says nothing of these.
    if missing := [page for page in re.findall(r'= "(.*\.md)"', settings) if not (PAGES / page).is_file()]:
        sys.exit(f"docs/zensical.toml: no such page, or no page of the README's leads to it: {', '.join(missing)}")
    (SITE / "zensical.toml").write_text(settings)
    build = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--config-file", "zensical.toml"]
    sys.exit(subprocess.run(build, cwd=SITE).returncode)


def _lay(path: Path) -> list[Path]:
    """Lay a file at its place in the site; return the files that it leads to, for a folder its page."""
    (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
    if path.suffix != ".md":
        shutil.copyfile(ROOT / path, PAGES / path)
        return []
    targets = []

    def follow(link: re.Match[str]) -> str:
        target, page = (ROOT / path.parent / link[0]).resolve(), ""
        if target.is_dir():
            page = "README.md" if (target / "README.md").is_file() else "index.md"
        if page or target.is_file():
            targets.append((target / page).relative_to(ROOT))
        return f"{link[0].rstrip('/')}/{page}" if page else link[0]

    text = (ROOT / path).read_text() if (ROOT / path).is_file() else _listing(path.parent)
    (PAGES / path).write_text(_LINK.sub(follow, text))
    return targets


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
