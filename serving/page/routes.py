"""The page at `/`: fill masks, compare and rank texts, compare versions and call signatures, over the REST port.

Its files lie in this folder: no build step, no external resources. They hold no secret and need no token, because a
browser could not send one for them; the page requests `/v1/models` with the token that its user enters, which stays in
memory. The policy below lets the browser load these files and call this server, nothing else;
`require-trusted-types-for` prevents strings from becoming HTML, so a model's output stays text.
"""

from pathlib import Path

from starlette.responses import Response
from starlette.routing import Route

_FOLDER = Path(__file__).parent
# By path: no other file can be requested.
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{file.name}": (file.name, "text/javascript") for file in _FOLDER.glob("*.js")},
}
PATHS = frozenset(_FILES)
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; "  # the empty icon, which stops browsers from requesting /favicon.ico
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # the address stays the same with a newer server
}


def routes() -> list[Route]:
    """A route for each file, for the REST application; the files are read now."""
    contents = {path: ((_FOLDER / name).read_bytes(), media_type) for path, (name, media_type) in _FILES.items()}
    return [
        Route(path, Response(content, media_type=media_type, headers=_HEADERS), methods=["GET"])
        for path, (content, media_type) in contents.items()
    ]
