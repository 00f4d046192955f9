"""The page at `/`: it fills masks, compares versions and calls signatures, from a browser, over the REST port.

Its files are those of `page/`: no build step, nothing from elsewhere. They hold no secret, so they need no token, as
a browser could not send one for them; what the page shows it asks of `/v1/models`, with the token that its user types
in and that it keeps in memory only. The policy below lets the browser load these files and call this server, nothing
else; with `require-trusted-types-for`, it refuses to make HTML of a string, so what a model says stays text.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_FOLDER = Path(__file__).with_name("page")
# By path: nothing else of the folder, or of any other, can be asked for.
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{name}": (name, "text/javascript") for name in ("page.js", "answers.js", "signatures.js")},
}
PATHS = frozenset(_FILES)
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",  # the empty icon, without which a browser asks for /favicon.ico
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # the page of a newer server has the same address
}


def routes() -> list[Route]:
    """A route a file, for the REST application; the files are read now."""
    return [Route(path, _endpoint(*file), methods=["GET"]) for path, file in _FILES.items()]


def _endpoint(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    content = (_FOLDER / name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, media_type=media_type, headers=_HEADERS)

    return answer
