"""A room's secrets: its code, the keys in its links, and the tokens in browsers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass

LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""The letters of codes that people type: none looks like another."""
_CODE_LETTERS = 6
_DONE_LETTERS = 8
_SECRET_BYTES = 18


@dataclass(frozen=True)
class RoomKeys:
    """The keys of a room.

    All but the code are derived from one secret, so links and cookies stay the same after a
    restart.

    Attributes:
        room: part of the cookies' names, since a browser sends cookies to all ports of a host.
        code: the code that people type.
        secret: the other keys are derived from it; it is never sent.
    """

    room: str
    code: str
    secret: str

    @classmethod
    def new(cls) -> RoomKeys:
        """Return the keys of a new room."""
        # Six of 31 letters make some 900 million codes, and wrong ones are answered ever more
        # slowly.
        letters = [secrets.choice(LETTERS) for _ in range(_CODE_LETTERS)]
        code = "".join(letters)
        return cls(
            room=secrets.token_hex(3),
            code=code,
            secret=secrets.token_urlsafe(24),
        )

    @property
    def join(self) -> str:
        """The key in the QR code's link."""
        return self._derived("join")

    @property
    def teacher(self) -> str:
        """The key of the teacher's page."""
        return self._derived("teacher")

    @property
    def projector(self) -> str:
        """The key of the projector's page."""
        return self._derived("projector")

    def of_label(self, label: str) -> str:
        """Return the key in a label's link."""
        return self._derived(f"label {label}")

    def completion_code(self, guest: str) -> str:
        """Return the code that a participant shows at the end."""
        digest = self._digest(f"done {guest}")
        # Slightly uneven, since 256 is not a multiple of 31; still nobody guesses eight letters.
        numbers = [byte % len(LETTERS) for byte in digest[:_DONE_LETTERS]]
        letters = [LETTERS[number] for number in numbers]
        return "".join(letters)

    def _derived(self, purpose: str) -> str:
        secret = self._digest(purpose)[:_SECRET_BYTES]
        return base64.urlsafe_b64encode(secret).decode()

    def _digest(self, purpose: str) -> bytes:
        # One way: a link reveals neither another link nor the secret.
        return hmac.digest(
            self.secret.encode(),
            purpose.encode(),
            "sha256",
        )


def new_token() -> str:
    """Return a new token for a participant's browser."""
    return secrets.token_urlsafe(24)


def token_digest(token: str) -> str:
    """Return what the room stores of a token: its files do not let anyone take a seat."""
    # Without salt: a token has 24 random bytes, which no list of guesses contains.
    return hashlib.sha256(token.encode()).hexdigest()


def is_same(given: object, expected: str) -> bool:
    """Return True if two texts are equal, in a time that does not reveal where they differ."""
    # A request may contain anything, even half characters.
    received = str(given).encode(errors="replace")
    return hmac.compare_digest(received, expected.encode())
