"""OAuth2 before a REST catalog: client credentials are exchanged for tokens that end soon."""

from __future__ import annotations

import base64
import json
import time
import uuid
from urllib.parse import parse_qs

CLIENT_ID = "someone"
CLIENT_SECRET = "hunter2-hunter2"


class TokenGate:
    """Lets nobody pass without a token of its own, which ends after `seconds`.

    Attributes:
        tokens: those handed out.
        refused: requests turned away.
    """

    path = "/tokens"

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[str, float] = {}
        self.tokens: list[str] = []
        self.refused = 0

    def exchange(self, authorization: str | None, form: bytes) -> tuple[int, bytes]:
        """Status and body for a client that asks for a token, by HTTP Basic or in the form (RFC 6749, 2.3.1)."""
        sent = {name: values[0] for name, values in parse_qs(form.decode()).items()}
        inside = f"{sent.get('client_id')}:{sent.get('client_secret')}"
        basic = base64.b64decode((authorization or "").partition("Basic ")[2]).decode()
        if sent.get("grant_type") != "client_credentials" or f"{CLIENT_ID}:{CLIENT_SECRET}" not in (inside, basic):
            return 401, json.dumps({"error": "invalid_client", "error_description": f"{basic} {inside}"}).encode()
        token = f"token-{uuid.uuid4().hex}"
        self.tokens.append(token)
        self._until[f"Bearer {token}"] = time.monotonic() + self._seconds
        answer = {"access_token": token, "token_type": "bearer", "expires_in": round(self._seconds)}
        return 200, json.dumps(answer).encode()

    def admits(self, authorization: str | None) -> bool:
        """Whether the header of a request carries a token that has not ended."""
        admitted = time.monotonic() < self._until.get(authorization or "", 0)
        self.refused += not admitted
        return admitted

    def refusal(self, authorization: str | None) -> bytes:
        """Quotes what it was sent, as some servers do."""
        error = {"message": f"{authorization} has ended", "type": "NotAuthorizedException", "code": 401}
        return json.dumps({"error": error}).encode()
