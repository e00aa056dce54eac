"""Asks a dashboard without a browser."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import httpx

from disentune.dashboard.guard import Guard
from processes import patience_s

TOKEN = "a-token-for-tests"


class Client:
    """Asks one dashboard, as a browser that has its cookie."""

    def __init__(self, guard: Guard):
        self.guard = guard
        self.cookies = {guard.cookie: TOKEN}

    def ask(self, path: str, params: Any = None, method: str = "GET", **settings: Any) -> httpx.Response:
        async def answer() -> httpx.Response:
            transport = httpx.ASGITransport(self.guard, raise_app_exceptions=False)
            cookies = settings.pop("cookies", self.cookies)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://127.0.0.1:8270", cookies=cookies
            ) as client:
                return await client.request(method, path, params=params, **settings)

        return asyncio.run(answer())

    def get(self, name: str, **params: Any) -> Any:
        """The answer of an address of the API, which must not be a refusal."""
        found = self.ask(f"/api/{name}", params)
        assert found.status_code == 200, found.text
        return found.json()

    def refused(self, name: str, **params: Any) -> tuple[int, str]:
        """Status and sentence."""
        found = self.ask(f"/api/{name}", params)
        return found.status_code, found.json()["error"]

    def until(self, name: str, holds: Callable[[Any], bool], **params: Any) -> Any:
        """Asks again until the answer is as expected."""
        deadline = time.monotonic() + patience_s(60)
        while not holds(found := self.get(name, **params)):
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        return found
