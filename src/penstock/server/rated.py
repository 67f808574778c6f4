"""Counts what HTTP requests carry in the allowance of their role: one layer round all endpoints, where there is one."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.protocols.rates import SCOPE_KEY, Allowance


class Rated:
    """An ASGI application round another. Whole answers are counted after they were given; the parts of those
    that go on, and of bodies, come as fast as the role may have them."""

    def __init__(self, inner: ASGIApp) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return

        async def received() -> Message:
            event = await receive()
            await _count(scope, event)
            return event

        async def sent(event: Message) -> None:
            await send(event)
            await _count(scope, event)

        await self._inner(scope, received, sent)


async def _count(scope: Scope, event: Message) -> None:
    body = event.get("body")
    allowance: Allowance | None = scope.get(SCOPE_KEY)
    if not body or allowance is None:
        return
    if event.get("more_body"):
        await allowance.spend(0, len(body))
    else:
        allowance.take(0, len(body))
