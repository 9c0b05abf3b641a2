"""The routes of sessions: create, list, read, change, erase, and the transcript in pages."""

import falcon

from actors.service import NewSession
from eventstore.catalogue import Json
from eventstore.queries import SessionRow
from gateways.http import views
from gateways.http.bodies import read_object
from gateways.http.checks import check_body
from gateways.http.errors import ApiError
from gateways.http.gate import asked, caller
from gateways.http.ports import HttpPorts

ERASED = "asked for by its owner"
"""What the log says of an erasure that came in here."""

LOOKED_AT = 2
"""Messages among which the first of the user is looked for: what a client brings may begin with a system message."""


class SessionRoutes:
    """Handlers; each runs on a worker's thread and sees only what belongs to the caller."""

    def __init__(self, ports: HttpPorts) -> None:
        self._ports = ports

    def create(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Create a session: 201 with the session."""
        body = optional_body(req, self._ports.settings.max_body_bytes)
        check_body("CreateSession", body)
        owner = caller(req).name
        session_id = self._ports.service.create_session(NewSession(owner=owner, **body))
        resp.status, resp.media = falcon.HTTP_201, self._shown(self._find(owner, session_id))
        resp.set_header("Location", f"/v1/sessions/{session_id}")

    def list(self, req: falcon.Request, resp: falcon.Response) -> None:
        """List the caller's sessions, newest first."""
        query = asked(req)
        rows = self._ports.queries.sessions(
            caller(req).name,
            limit=query["limit"] + 1,
            after=query["after"],
            platform=query["platform"],
            include_ephemeral=query["include_ephemeral"],
        )
        resp.media = views.page([self._shown(row) for row in rows], query["limit"], "session_id")

    def read(self, req: falcon.Request, resp: falcon.Response, session_id: str) -> None:
        """Read a session."""
        resp.media = self._shown(self._find(caller(req).name, session_id))

    def change(self, req: falcon.Request, resp: falcon.Response, session_id: str) -> None:
        """Change title or settings, and answer with the session as it is then."""
        body = read_object(req, self._ports.settings.max_body_bytes)
        check_body("ChangeSession", body)
        owner = caller(req).name
        self._find(owner, session_id)
        self._ports.service.change_session(owner, session_id, body)
        resp.media = self._shown(self._find(owner, session_id))

    def erase(self, req: falcon.Request, resp: falcon.Response, session_id: str) -> None:
        """Erase a session and its runs: 204 once nothing of them is on record; a repeat finds no session."""
        self._ports.service.erase_session(caller(req).name, session_id, ERASED)
        resp.status = falcon.HTTP_204

    def messages(self, req: falcon.Request, resp: falcon.Response, session_id: str) -> None:
        """Read the transcript by ordinal."""
        query = asked(req)
        self._find(caller(req).name, session_id)
        rows = self._ports.queries.messages(session_id, limit=query["limit"] + 1, after=query["after"])
        resp.media = views.page([views.message(row) for row in rows], query["limit"], "ordinal")

    def _shown(self, row: SessionRow) -> Json:
        first = self._ports.queries.messages(row.session_id, limit=LOOKED_AT)
        return views.session(row, views.preview([each.message for each in first]))

    def _find(self, owner: str, session_id: str) -> SessionRow:
        row = self._ports.queries.session(owner, session_id)
        if row is None:
            raise ApiError("session_not_found", "There is no such session, or it is another principal's.")
        return row


def optional_body(req: falcon.Request, limit: int) -> Json:
    """Read a body that may be missing, which is the same as an empty object.

    Raises:
        ApiError: as `read_object`, for a body that is there.
    """
    return read_object(req, limit) if req.content_length else {}
