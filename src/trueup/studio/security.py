"""Access control: requests only from this machine, by a link that works once, and from the studio's own pages.

Another site cannot read an answer, nor make the browser send a change (Host, Origin and Sec-Fetch-Site are checked; cookies are
`SameSite=Strict`); a name that resolves to this machine does not help it (Host). Another user of the machine has neither link
nor cookie. The link works once; the next one is printed when it was used.

Browsers send a cookie to every port of its host: another server of this machine could ask for it. So pages stand below a path
that only they know, and the cookie is sent below that path alone.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_REQUEST_BYTES = 2**20
"""Bytes of a request at most."""
LOOPBACK = ("127.0.0.1", "::1")
CLOSED = "This page opens with the link that `trueup studio` printed. Each link works once; the last one printed is new."
USED = "This link was used before, or is not that of this studio. The last one that `trueup studio` printed is new."
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Keys:
    """The token of the link that works once, and the cookie and the path for users who have followed it."""

    def __init__(self, port: int, tell: Callable[[str], None] = lambda link: None) -> None:
        self.hosts = {f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]")}
        self.cookie = f"trueup-studio-{port}"
        self.home = f"/{secrets.token_urlsafe(16)}"
        self._port, self._tell = port, tell
        self._session = secrets.token_urlsafe(32)
        self._token = secrets.token_urlsafe(32)

    @property
    def link(self) -> str:
        """Return the link to the studio, which works once."""
        return f"http://127.0.0.1:{self._port}/enter?token={self._token}"

    def enter(self, token: str) -> bool:
        """Return True if a token is the current one, which is then replaced."""
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return False
        self._token = secrets.token_urlsafe(32)
        self._tell(self.link)
        return True

    def knows(self, cookie: str | None) -> bool:
        """Return True if a cookie was set by this studio."""
        return hmac.compare_digest((cookie or "").encode(), self._session.encode())

    def welcome(self) -> Response:
        """Return the response that sets the cookie and redirects to the first page."""
        response = RedirectResponse(f"{self.home}/", 303)
        response.set_cookie(
            self.cookie,
            self._session,
            httponly=True,
            samesite="strict",
            path=f"{self.home}/",
            max_age=12 * 3600,
        )
        return response


class Guarded:
    """Middleware that refuses requests from elsewhere and adds security headers."""

    def __init__(self, app: ASGIApp, keys: Keys, refuse: Callable[[int, str], Response]) -> None:
        self._app, self._keys, self._refuse = app, keys, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        request = Request(scope)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if (to := headers.get("location", "")).startswith("/") and not to.startswith(self._keys.home):
                    headers["location"] = self._keys.home + to
            await send(message)

        fault = self._fault(request)
        if fault:
            await self._refuse(*fault)(scope, receive, answer)
        elif request.url.path == "/enter" and request.method == "GET":
            token = parse_qs(request.url.query).get("token", [""])[0]
            response = self._keys.welcome() if self._keys.enter(token) else self._refuse(401, USED)
            await response(scope, receive, answer)
        elif not (
            scope["path"].startswith(f"{self._keys.home}/")
            and self._keys.knows(request.cookies.get(self._keys.cookie))
        ):
            await self._refuse(401, CLOSED)(scope, receive, answer)
        else:
            inner = scope["path"].removeprefix(self._keys.home)
            await self._app({**scope, "path": inner, "raw_path": inner.encode()}, receive, answer)

    def _fault(self, request: Request) -> tuple[int, str] | None:
        headers = request.headers
        if request.client is None or request.client.host not in LOOPBACK:
            return 403, "The studio answers this machine only."
        if headers.get("host") not in self._keys.hosts:
            return 421, "The studio answers under 127.0.0.1 and localhost only."
        if request.method not in ("GET", "HEAD", "POST"):
            return 405, "The studio knows GET and POST only."
        if _foreign(headers, changing=request.method == "POST"):
            return 403, "This request comes from another site. Nothing was done."
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdecimal() or int(length) > MAX_REQUEST_BYTES:
            return 413, "The request is too large, or does not say how large it is."
        return None


def _foreign(headers: Headers, *, changing: bool) -> bool:
    """Return True if a request comes from another site, or would change something without stating its origin."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None and origin != f"http://{headers['host']}":
        return True
    if site == "none" or (
        site == "cross-site" and headers.get("sec-fetch-mode") == "navigate" and not changing
    ):
        return changing  # typed, or a link: it may look, once it has the cookie, which no other site can send
    return site not in (None, "same-origin") or (changing and origin is None)
