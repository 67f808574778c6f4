"""A durable subscription that follows a query, so that the server knows what the query still needs."""

import logging

from penstock.model.errors import PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.calls import Caller
from penstock.pipeline.http.logs import Mark, set_marks

from .marks import Available, Key, LogPosition, Marks

log = logging.getLogger(__name__)


class Follower:
    """Reports to the server how far a query has come; without a subscription's name it does nothing.

    It is called at the start of a batch, before which everything has been committed, so that an idle query is
    followed to its end too. `Source.commit` would lag a batch behind.
    """

    def __init__(self, subscription: str) -> None:
        self._subscription = subscription
        self._at: dict[Key, LogPosition] = {}
        self._behind = False  # whether that was logged

    def follow(self, client: Caller, done: Marks) -> None:
        """Everything before `done` has been committed."""
        self._set(client, {key: spot for key, spot in done.spots.items() if self._at.get(key) != spot})

    def begin(self, client: Caller, start: Marks, found: Available) -> None:
        """A batch begins in logs that the query did not read before: the server retains them for it from there on.

        A query that begins from the start takes the subscription with it, back too.
        """
        new = {
            key: head._replace(offset=found.begins[key])
            for key, head in found.heads.items()
            if start.initial or key not in start.spots
        }
        self._set(client, new, exact=start.initial)

    def _set(self, client: Caller, spots: dict[Key, LogPosition], *, exact: bool = False) -> None:
        if not self._subscription or not spots:
            return
        marks = [Mark(*key, spot.ledger, spot.offset) for key, spot in spots.items()]
        try:
            refused = set_marks(client, self._subscription, marks, exact=exact)
        except PenstockError as error:
            if not error.retriable:
                raise PipelineError(f"option subscription: {error.message}", error.kind) from None
            # The next batch tries again; the query itself needs nothing of it.
            if not self._behind:
                log.warning(
                    "subscription %s cannot follow the query now: %s", self._subscription, error.message
                )
            self._behind = True
            return
        self._behind = False
        for reason in refused.values():
            log.warning("subscription %s could not follow the query: %s", self._subscription, reason)
        self._at |= spots
